# Rscript glmnet.R TABLE ANSWER training-rows new-rows columns classes
# TABLE: X of both kinds of rows by columns, then labels 1, 2, ... of the training rows, as doubles.
# ANSWER: CPU seconds; for lambda.1se and for lambda.min: lambda, the cross-validated error, which columns are
# kept, and class probabilities of the new rows; then weights of a fit at lambda.min to 1e-14, of two classes.
arguments <- commandArgs(trailingOnly = TRUE)
numbers <- as.integer(arguments[3:6])
n <- numbers[1]; n_new <- numbers[2]; p <- numbers[3]; k <- numbers[4]
values <- readBin(arguments[1], "double", (n + n_new) * p + n)
X <- matrix(values[seq_len((n + n_new) * p)], n + n_new, p)
training <- X[seq_len(n), , drop = FALSE]
new <- X[n + seq_len(n_new), , drop = FALSE]
y <- factor(values[(n + n_new) * p + seq_len(n)], levels = seq_len(k))
suppressPackageStartupMessages(library(glmnet))
family <- if (k == 2) "binomial" else "multinomial"
set.seed(0)
start <- proc.time()
fit <- if (k == 2) cv.glmnet(training, y, family = family) else
  cv.glmnet(training, y, family = family, type.multinomial = "grouped")
spent <- proc.time() - start
answer <- spent[["user.self"]] + spent[["sys.self"]]
for (s in c("lambda.1se", "lambda.min")) {
  weights <- coef(fit, s = s)
  weights <- if (k == 2) weights else weights[[1]]
  proba <- predict(fit, new, s = s, type = "response")
  proba <- if (k == 2) cbind(1 - proba, proba) else proba[, , 1]
  answer <- c(answer, fit[[s]], fit$cvm[fit$lambda == fit[[s]]], as.numeric(as.vector(weights)[-1] != 0), as.vector(t(proba)))
}
if (k == 2) {
  exact <- glmnet(training, y, family = family, lambda = fit$lambda.min, thresh = 1e-14, maxit = 1e6)
  answer <- c(answer, as.vector(coef(exact)))
}
writeBin(as.double(answer), arguments[2])
