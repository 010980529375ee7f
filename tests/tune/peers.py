"""Searches surfaces of tests/tune.sh with optuna's TPE and SMAC3, and compares their median regret with the tuner's.

    peers.py FILE     FILE is what `tests/tune.sh` exports; ends with 1 if a median of the tuner is more than one point higher

Each tool gets the default configuration first, the same number of starts, the same noise, and its own defaults otherwise. A
configuration that does not run has half of the lowest figure so far; TPE gets it as a violated constraint too. The winner is the
tool's own: the best trial of TPE, the incumbent of SMAC3, which starts good configurations again.
"""

import json
import logging
import math
import statistics
import sys
import tempfile
import warnings

import numpy
import optuna
from ConfigSpace import CategoricalHyperparameter, Configuration, ConfigurationSpace, UniformIntegerHyperparameter
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory.dataclasses import TrialValue
from smac.runhistory.enumerations import StatusType

MARGIN = 0.01


class Surface:
    """A surface, with the starts that were made on it."""

    def __init__(self, fields, stream):
        self.knobs = fields["knobs"]
        self.figures = fields["figures"]
        self.noise = fields["noise"]
        self.best = max(figure for figure in self.figures if figure is not None)
        self.draws = numpy.random.default_rng([fields["seed"], stream])
        self.lowest = self.figure(self.default())

    def figure(self, point):
        index = 0
        for (_, _, values, _), value in zip(self.knobs, point):
            index = index * values + int(value)
        return self.figures[index]

    def start(self, point):
        """The logarithm of a measured figure, and whether the configuration runs."""
        figure = self.figure(point)
        if figure is None:
            return self.lowest - math.log(2), False
        log = figure + self.noise * self.draws.standard_normal()
        self.lowest = min(self.lowest, log)
        return log, True

    def regret(self, point):
        figure = self.figure(point)
        return 1.0 if figure is None else 1.0 - math.exp(figure - self.best)

    def default(self):
        return [default for (_, _, _, default) in self.knobs]


def tpe(surface, starts, seed):
    sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=lambda trial: trial.user_attrs["violation"])
    study = optuna.create_study(direction="maximize", sampler=sampler)
    names = [name for (name, _, _, _) in surface.knobs]
    study.enqueue_trial(dict(zip(names, surface.default())))

    def objective(trial):
        point = [
            trial.suggest_int(name, 0, values - 1) if is_ordered else trial.suggest_categorical(name, list(range(values)))
            for (name, is_ordered, values, _) in surface.knobs
        ]
        log, runs = surface.start(point)
        trial.set_user_attr("violation", (-1.0,) if runs else (1.0,))
        trial.set_user_attr("runs", runs)
        return log

    study.optimize(objective, n_trials=starts)
    ran = [trial for trial in study.trials if trial.user_attrs["runs"]]
    best = max(ran, key=lambda trial: trial.value)
    return [best.params[name] for name in names]


def smac(surface, starts, seed):
    space = ConfigurationSpace(seed=seed)
    for name, is_ordered, values, default in surface.knobs:
        if is_ordered:
            space.add(UniformIntegerHyperparameter(name, 0, values - 1, default_value=default))
        else:
            space.add(CategoricalHyperparameter(name, list(range(values)), default_value=default))
    names = [name for (name, _, _, _) in surface.knobs]
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(space, n_trials=starts, seed=seed, deterministic=False, output_directory=folder)
        default = Configuration(space, values=dict(zip(names, surface.default())))
        design = HyperparameterOptimizationFacade.get_initial_design(scenario, additional_configs=[default])
        facade = HyperparameterOptimizationFacade(
            scenario, lambda config, seed=0: 0.0, initial_design=design, logging_level=logging.ERROR, overwrite=True
        )
        tried = {}
        for _ in range(starts):
            info = facade.ask()
            point = tuple(int(info.config[name]) for name in names)
            log, runs = surface.start(point)
            tried.setdefault(point, []).append(log if runs else None)
            status = StatusType.SUCCESS if runs else StatusType.CRASHED
            facade.tell(info, TrialValue(cost=-log, time=1.0, status=status))
        incumbent = facade.intensifier.get_incumbent()
    if incumbent is not None:
        return [int(incumbent[name]) for name in names]
    return surface.default()


def main():
    warnings.simplefilter("ignore")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    regrets = {}
    with open(sys.argv[1]) as lines:
        for line in lines:
            fields = json.loads(line)
            found = regrets.setdefault(fields["surface"], {"tuner": [], "TPE": [], "SMAC3": []})
            found["tuner"].append(fields["regret"])
            for stream, (name, search) in enumerate([("TPE", tpe), ("SMAC3", smac)]):
                surface = Surface(fields, stream)
                found[name].append(surface.regret(search(surface, fields["starts"], fields["seed"])))
    is_good = True
    print(f"median regret in %     {'tuner':>8} {'TPE':>8} {'SMAC3':>8}   (means)")
    for name, found in regrets.items():
        medians = {tool: statistics.median(values) for tool, values in found.items()}
        means = {tool: statistics.fmean(values) for tool, values in found.items()}
        is_met = medians["tuner"] <= min(medians.values()) + MARGIN
        is_good = is_good and is_met
        row = " ".join(f"{100 * medians[tool]:8.1f}" for tool in medians)
        row += "   " + " ".join(f"{100 * means[tool]:6.1f}" for tool in means)
        print(f"{name:<22} {row}{'' if is_met else '   MISSED'}")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
