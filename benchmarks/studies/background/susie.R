# Rscript susie.R TABLE ANSWER rows columns effects
# TABLE: X by columns, then y, as doubles. ANSWER: CPU seconds, whether it converged, and an inclusion probability
# for every column.
arguments <- commandArgs(trailingOnly = TRUE)
n <- as.integer(arguments[3])
p <- as.integer(arguments[4])
values <- readBin(arguments[1], "double", n * p + n)
X <- matrix(values[seq_len(n * p)], n, p)
y <- values[n * p + seq_len(n)]
suppressPackageStartupMessages(library(susieR))
start <- proc.time()
fit <- suppressWarnings(susie(X, y, L = as.integer(arguments[5]), max_iter = 500))
spent <- proc.time() - start
seconds <- spent[["user.self"]] + spent[["sys.self"]]
writeBin(c(seconds, as.numeric(fit$converged), fit$pip), arguments[2])
