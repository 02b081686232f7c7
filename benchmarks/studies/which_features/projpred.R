# Rscript projpred.R FOLDER SIZES: lists and probabilities of projpred (Piironen et al. 2020), from train.csv and
# test.csv, whose last column is y (0, 1), into order.csv and one proba_SIZE.csv each (0: the reference model).
suppressMessages({
  library(rstanarm)
  library(projpred)
})
arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
sizes <- as.integer(strsplit(arguments[2], ",")[[1]])
train <- read.csv(file.path(folder, "train.csv"))
test <- read.csv(file.path(folder, "test.csv"))
options(mc.cores = 1)
# As the package's vignette: a regularised horseshoe that expects a few features.
columns <- setdiff(names(train), "y")
scale <- max(sizes) / (length(columns) - max(sizes)) / sqrt(nrow(train))
model <- stan_glm(
  reformulate(columns, "y"), data = train, family = binomial(), prior = hs(global_scale = scale),
  chains = 2, iter = 1000, seed = 1, refresh = 0
)
found <- varsel(model, method = "L1", nterms_max = max(sizes), seed = 1, verbose = FALSE)
write.csv(data.frame(term = solution_terms(found)), file.path(folder, "order.csv"), row.names = FALSE)
written <- function(size, proba) {
  write.csv(data.frame(proba = proba), file.path(folder, sprintf("proba_%d.csv", size)), row.names = FALSE)
}
written(0, colMeans(posterior_epred(model, newdata = test)))
for (size in sizes) {
  panel <- project(found, nterms = size, seed = 1)
  written(size, colMeans(proj_linpred(panel, newdata = test, transform = TRUE, .seed = 1)$pred))
}
