# Writes the tables of this study from the data that come with R packages of Debian into the working directory.
#
#   apt-get install r-base-core r-bioc-all r-bioc-bladderbatch r-bioc-metagenomeseq r-bioc-phyloseq r-bioc-qusage \
#     r-cran-adegenet r-cran-caret r-cran-kernlab r-cran-mlbench r-cran-tidytext
#   mkdir tables && cd tables && Rscript .../export.R
#
# NAME.bin has the values, row by row, as single precision; NAME.labels the shape, then a label a line.

library(methods)

put <- function(name, values, labels) {
  known <- !is.na(labels)
  values <- as.matrix(values)[known, , drop = FALSE]
  connection <- file(paste0(name, ".bin"), "wb")
  writeBin(as.numeric(t(values)), connection, size = 4)
  close(connection)
  writeLines(c(dim(values), as.character(labels[known])), paste0(name, ".labels"))
  cat(name, dim(values), "\n")
}

of_package <- function(package, name) {
  place <- new.env()
  found <- Sys.glob(file.path(find.package(package), "*", paste0(name, c(".rda", ".RData"))))
  if (length(found)) load(found[1], place) else data(list = name, package = package, envir = place)
  place
}

suppressMessages({library(Biobase); library(phyloseq); library(metagenomeSeq); library(adegenet)})

# Acute lymphoblastic leukemia: B against T cells, a translocation, sex, relapse, three molecular types.
leukemia <- of_package("ALL", "ALL")$ALL
genes <- t(exprs(leukemia)); about <- pData(leukemia)
of_b_cells <- grepl("^B", about$BT)
put("all_cells", genes, ifelse(of_b_cells, "B", "T"))
put("all_sex", genes, about$sex)
put("all_relapse", genes, about$relapse)
for (types in list(c("BCR/ABL", "NEG"), c("BCR/ABL", "NEG", "ALL1/AF4"))) {
  rows <- of_b_cells & about$mol.biol %in% types
  put(paste0("all_", length(types), "_types"), genes[rows, ], about$mol.biol[rows])
}

bladder <- of_package("bladderbatch", "bladderdata")$bladderEset
put("bladder_cancer", t(exprs(bladder)), pData(bladder)$cancer == "Cancer")
put("bladder_3_kinds", t(exprs(bladder)), pData(bladder)$cancer)

# Influenza, the same people at several times: samples are not independent, for any of the methods.
flu <- of_package("qusage", "fluExample")
late <- flu$flu.meta$Hours.Numeric >= 45
put("flu_sex", t(flu$eset.full), flu$flu.meta$Gender)
put("flu_symptoms", t(flu$eset.full[, late]), flu$flu.meta$Condition[late])

lung <- of_package("metagenomeSeq", "lungData")$lungData
put("lung_smokers", t(MRcounts(lung)), pData(lung)$SmokingStatus)
mouse <- of_package("metagenomeSeq", "mouseData")$mouseData
put("mouse_diet", t(MRcounts(mouse)), pData(mouse)$diet)
for (each in list(c("soilrep", "warmed"), c("enterotype", "SeqTech"))) {
  community <- of_package("phyloseq", each[1])[[each[1]]]
  counts <- as(otu_table(community), "matrix")
  if (taxa_are_rows(community)) counts <- t(counts)
  put(each[1], counts, sample_data(community)[[each[2]]])
}

# Alleles: how many copies each person, or each cow, has.
people <- of_package("adegenet", "eHGDP")$eHGDP
alleles <- people@tab; alleles[is.na(alleles)] <- 0
populations <- people@other$popInfo
put("hgdp_regions", alleles, populations$Region[match(as.character(pop(people)), as.character(populations$Label))])
cattle <- of_package("adegenet", "microbov")$microbov
alleles <- cattle@tab; alleles[is.na(alleles)] <- 0
put("cattle_continents", alleles, cattle@other$coun)

molecules <- of_package("caret", "mdrr"); put("mdrr", molecules$mdrrDescr, molecules$mdrrClass)
molecules <- of_package("caret", "dhfr")$dhfr; put("dhfr", molecules[, -1], molecules$Y)
molecules <- of_package("caret", "cox2"); put("cox2", molecules$cox2Descr, molecules$cox2Class)
musk <- of_package("kernlab", "musk")$musk; put("musk", musk[, -ncol(musk)], musk$Class)
spam <- of_package("kernlab", "spam")$spam; put("spam", spam[, -58], spam$type)
pixels <- of_package("mlbench", "Satellite")$Satellite; put("satellite", pixels[, 1:36], pixels$classes)
dna <- of_package("mlbench", "DNA")$DNA
put("dna", sapply(dna[, 1:180], function(base) as.numeric(as.character(base))), dna$Class)
books <- of_package("tidytext", "books")$books
write.csv(books[, c("title", "text")], "books.csv", row.names = FALSE)
