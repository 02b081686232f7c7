"""What fits cost, in operations of one iteration, and up to which costs a plan chooses what."""

from __future__ import annotations

from dataclasses import dataclass


def exact_cost(n_samples: int, n_features: int, n_scores: int = 1) -> float:
    """Of one iteration with exact covariances."""
    small, large = sorted((n_samples, n_features))
    return float(small) ** 2 * (large + small) * n_scores


def kernel_cost(n_samples: int) -> float:
    """Of one iteration in matrices of samples by samples."""
    return float(n_samples) ** 3


@dataclass(frozen=True)
class Budget:
    """The largest costs at which something is still done.

    In operations of one iteration, unless another unit is named. Times are of one core.
    """

    exact: float = 1e10  # exact covariances: about half a second
    # The same over a background, where a dozen iterations do: two seconds, in single precision.
    exact_over_background: float = 1e11
    # All features are visited in every iteration, and by informed ridges: a tenth of a second.
    every_feature: float = 5e8
    # Products with X are made in double precision: they take no longer than what is beside them.
    double: float = 5e6
    # A sparse model of all columns, where samples outnumber features: 20 milliseconds.
    all_columns: float = 5e8
    # A blend is settled again without each sample: pairs of samples and columns that move, 30 milliseconds.
    left_out_edges: int = 500_000
    polish: float = 2e8  # message passing is finished with exact covariances: ten milliseconds
    # The fit is repeated at neighbours of its parameters, and they are learnt without parts of the samples.
    integrate: float = 5e7
    tune_many: float = 2e8  # EM of several classes: about a second in all
    # Labels of several classes may be wrong, which takes a response to every class for each sample: scores in
    # these responses. A fifth of a second, in each of dozens of iterations.
    flips: float = 2e5
    ridge_step: float = 4e10  # a Newton step of a ridge: about two seconds
    ridge_left_out: float = 5e9  # samples are left out of a ridge one by one: a quarter of a second
    ridge_sets: float = 5e10  # samples are left out of a ridge in sets: about two seconds
    ridge_ep: float = 1e8  # expectation propagation for ridges: half a second for all of them
    # Generative weights are compared on so many rows, if they are at most this share of all: with so many
    # rows a proportion is known to a third of a per cent.
    search_rows: int = 20_000
    search_share: float = 0.1
    # The one limit from below: with so many features, most weights of two classes are visited only now and
    # then (`solvers.screening`).
    screened: int = 1_000_000
    permuted: float = 1e7  # labels are permuted for the p value: entries of the table, times its scores

    def null_test(self, shape: tuple[int, int], n_classes: int, *, in_memory: bool) -> str:
        """By permutations where products with many vectors cost little; else by losses of left-out labels."""
        n_values = shape[0] * shape[1] * (1 if n_classes == 2 else n_classes)
        return "permutation" if in_memory and n_values <= self.permuted else "losses"

    def rows_to_search(self, n_samples: int) -> int:
        """How many rows generative weights are compared on before all are fitted; 0: on all at once."""
        return self.search_rows if n_samples * self.search_share >= self.search_rows else 0
