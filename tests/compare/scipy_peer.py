"""What scipy makes of the samples on stdin. Whatever scipy lacks is counted out by hand, by another way than ours."""

import json
import sys

import numpy
from scipy import stats

asked = json.load(sys.stdin)


def holm(p):
    """The largest, over all smaller p, of each times the number of those that are no smaller."""
    ordered = sorted(p)
    adjusted = {value: max(min(1, (len(p) - at) * ordered[at]) for at in range(rank + 1)) for rank, value in enumerate(ordered)}
    return [adjusted[value] for value in p]


def case(first, second):
    t = stats.ttest_ind(second, first, equal_var=True)
    interval = t.confidence_interval(0.95)
    return {
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
        "holm": holm(asked["p"]),
        "percentiles": [percentile(*pair) for pair in asked["percentiles"]],
        "quantiles": [stats.t.ppf(chance, freedom) for freedom, chance in asked["quantiles"]],
    },
    sys.stdout,
)
