"""What scipy makes of the samples on stdin. Whatever scipy lacks is counted out by hand, by another way than ours."""

import itertools
import json
import sys

import numpy
from scipy import stats

asked = json.load(sys.stdin)


def rank_sum(first, second):
    """Every way of dealing the ranks, one by one."""
    ranks = stats.rankdata(first + second)
    observed = sum(ranks[len(first):])
    sums = [sum(chosen) for chosen in itertools.combinations(ranks, len(second))]
    below = sum(value <= observed + 1e-9 for value in sums) / len(sums)
    above = sum(value >= observed - 1e-9 for value in sums) / len(sums)
    if len(set(first + second)) == len(first) + len(second):
        exact = stats.mannwhitneyu(first, second, method="exact").pvalue
        assert abs(exact - min(1, 2 * min(below, above))) < 1e-12, "scipy and the count agree"
    return min(1, 2 * min(below, above)), below


def shift_interval(first, second, level=0.95):
    """The differences that the test of the shifted second side does not reject, by counting U of all orders."""
    n, m = len(first), len(second)
    orders = itertools.combinations(range(n + m), m)
    u = numpy.array([sum(order) - m * (m - 1) // 2 for order in orders])
    differences = sorted(b - a for a in first for b in second)
    cut = 0
    while (u < cut + 1).mean() <= (1 - level) / 2:
        cut += 1
    return [differences[cut - 1], differences[-cut]] if cut else None


def case(first, second):
    p, below = rank_sum(first, second)
    t = stats.ttest_ind(second, first, equal_var=True)
    interval = t.confidence_interval(0.95)
    return {
        "rank_sum": p,
        "below": below,
        "shift": numpy.median([b - a for a in first for b in second]),
        "shift_interval": shift_interval(first, second),
        "t": t.pvalue,
        "t_interval": [interval.low, interval.high],
    }


def components(starts):
    sizes = numpy.array([len(start) for start in starts])
    f = stats.f_oneway(*starts).statistic
    within = sum(numpy.var(start, ddof=1) * (len(start) - 1) for start in starts) / (sizes.sum() - len(starts))
    size = (sizes.sum() - (sizes**2).sum() / sizes.sum()) / (len(starts) - 1)
    return within, max(0, (f - 1) * within / size)


def percentile(n, share, level=0.95):
    low = int(stats.binom.ppf((1 - level) / 2, n, share))
    if stats.binom.cdf(low, n, share) <= (1 - level) / 2:
        low += 1
    high = int(stats.binom.ppf((1 + level) / 2, n, share))
    return [low - 1, high] if low > 0 and high < n else None


within, between = components(asked["starts"])
json.dump(
    {
        "cases": [case(*pair) for pair in asked["cases"]],
        "within": within,
        "between": between,
        "false_discovery": list(stats.false_discovery_control(asked["p"])),
        "percentiles": [percentile(*pair) for pair in asked["percentiles"]],
        "quantiles": [stats.t.ppf(chance, freedom) for freedom, chance in asked["quantiles"]],
    },
    sys.stdout,
)
