"""The report: its figures by hand, pages that no word of a game can break, runs that have only begun."""

import dataclasses
import json
import math
import re
import shutil
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest

from spo_fast.train.config import OptimisationConfig, TrainConfig
from spo_fast.train.evaluation import paired_difference
from spo_fast.train.report import statistics, write_comparison, write_report
from spo_fast.train.report.charts import charts
from spo_fast.train.report.comparison import held_out_difference
from spo_fast.train.report.logs import Evaluation, load_run
from spo_fast.train.report.plot import Plot, style
from spo_fast.train.report.wording import clean, signed
from spo_fast.train.summary import Rate, Summary
from tests.tolerances import FLOAT64

EVIL = "<script>alert(1)</script></svg></p></i>\"'><img src=x onerror=y> <|im_start|> &amp; $\\frac{$ \ud800 \x1b[31m \u202e {{ 7*7 }}\n{% x"
TAME = EVIL.translate({ord(c): "x" for c in "<>\"'&$\\{}%"})  # as long and with the same line ends


def near(value):
    return pytest.approx(value, abs=FLOAT64)


def write_lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def make_run(
    folder,
    *,
    seed=0,
    algorithm="spo++",
    word="go",
    finished=True,
    rewards=(0.2, 0.4, 0.6),
    after=(1, 1, 0, 1),
    batch=2,
):
    """A run of two episodes an update and four held-out games; ``word`` stands wherever a game or model may speak."""
    folder.mkdir(parents=True)
    updates = len(rewards)
    config = TrainConfig(
        algorithm=algorithm,
        output=folder,
        seed=seed,
        optimisation=OptimisationConfig(updates=updates, prompts_per_step=batch),
    )
    config = dataclasses.replace(config, policy=dataclasses.replace(config.policy, system_prompt=word))
    (folder / "config.json").write_text(config.to_json())
    steps = range(1, updates + 1)
    keys = "value_mean tracker_value_mean entropy_estimate approx_kl kl_mean clip_fraction dual_clip_fraction ess"
    keys += " rollout_is_mean ratio_max action_tokens_mean generate_s env_s update_s other_s tokens_per_s env_steps_per_s"
    write_lines(
        folder / "metrics.jsonl",
        [
            {"step": step, "success": reward, **dict.fromkeys(keys.split(), 0.5)}
            for step, reward in zip(steps, rewards, strict=True)
        ],
    )
    # outcome - value is +-1/2, of 1 and 3 tokens: centred over tokens and scaled, 3/2 and -1/2
    two = [
        {
            "task_id": word,
            "task_type": word,
            "outcome": 1.0,
            "value": 0.5,
            "advantage": 1.5,
            "action_tokens": 1,
        },
        {
            "task_id": "b",
            "task_type": "b",
            "outcome": 0.0,
            "value": 0.5,
            "advantage": -0.5,
            "action_tokens": 3,
        },
    ]
    episodes = [{"step": step, "number": i, **episode} for step in steps for i, episode in enumerate(two)]
    write_lines(folder / "episodes.jsonl", episodes)
    turns = [{"observation": word, "tokens": [word, "\n", ""], "logprobs": [-0.5, -1.0, 0.0]}]
    write_lines(folder / "transcripts.jsonl", [{**e, "turns": turns, "end": word} for e in episodes])
    write_lines(folder / "resources.jsonl", [{"step": step, "rss_mb": 900.0, "gpu_mb": 0} for step in steps])
    types = {word: word, "b": "b", "c": "b", "d": "b"}
    outcomes = [dict.fromkeys(types, 0.0), dict(zip(types, map(float, after), strict=True))]
    write_lines(
        folder / "evaluations.jsonl",
        [
            {"step": step, "outcomes": o, "task_types": types}
            for step, o in zip((0, updates), outcomes, strict=True)
        ],
    )
    if finished:
        rates = {"all": Rate(0.5, 0.25, 0.75, 4)}
        summary = Summary(
            algorithm, seed, rates, rates, (0.0, -0.1, 0.1), 0.4, {"train": 60.0, "evaluate": 5.0}
        )
        (folder / "summary.json").write_text(json.dumps(dataclasses.asdict(summary)))
    return folder


class Page(HTMLParser):
    """What a browser would make of a page: its elements in order, their attributes, its text."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")

    def handle_data(self, data):
        self.words.append(data)


# --- figures


def test_calibration_by_hand():
    result = statistics.calibration(
        np.array([0.05, 0.05, 0.05, 0.05, 0.75, 0.75]), np.array([0, 0, 0, 1, 1, 0.0])
    )
    low, high = result.bins
    assert (low.predicted, low.observed, low.episodes) == (near(0.05), 0.25, 4)
    assert (low.low, low.high) == (pytest.approx(0.04559, abs=1e-4), pytest.approx(0.69937, abs=1e-4))
    assert (high.predicted, high.observed, high.episodes) == (near(0.75), 0.5, 2)
    # squares: 3 x 0.0025, 0.9025, 0.0625, 0.5625
    assert result.brier == near(1.535 / 6)
    assert result.constant_brier == near(2 / 9)
    # |0.05 - 0.25| of 4, |0.75 - 0.5| of 2
    assert result.ece == near((4 * 0.2 + 2 * 0.25) / 6)


def test_a_value_of_one_is_in_the_last_bin():
    (only,) = statistics.calibration(np.array([0.95, 1.0]), np.array([1.0, 1.0])).bins
    assert (only.predicted, only.episodes) == (near(0.975), 2)


def test_residual_centre_by_hand():
    # Over episodes: mean 0, variance 1/2, so +-1/2 becomes +-a on 1 and 3 tokens, whose mean is (1 - 3) a / 4.
    a = 0.5 / (math.sqrt(0.5) + 1e-8)
    centres = statistics.residual_centres(
        steps=np.array([1.0, 2.0, 1.0, 2.0]),
        outcomes=np.array([1.0, 1.0, 0.0, 0.0]),
        values=np.full(4, 0.5),
        lengths=np.array([1.0, 2.0, 3.0, 2.0]),
        advantages=np.array([1.5, 1.0, -0.5, -1.0]),
    )
    assert centres.steps.tolist() == [1, 2]
    assert centres.whitened.tolist() == near([-a / 2, 0])
    assert centres.used.tolist() == near([0, 0])
    assert math.isnan(statistics.token_mean(np.array([1.0]), np.array([0.0])))


def test_smoothing_is_shorter_at_the_ends_and_skips_what_is_missing():
    assert statistics.moving_mean(np.array([1, 2, math.nan, 6]), 3).tolist() == [1.5, 1.5, 4, 6]
    sums, counts = np.array([1.0, 0, 2]), np.array([2.0, 0, 2])
    assert statistics.pooled_mean(sums, counts, 3).tolist() == [0.5, 0.75, 1]
    np.testing.assert_equal(statistics.pooled_mean(sums, counts, 1), [0.5, math.nan, 1])
    assert [statistics.smoothing_width(n) for n in (3, 60, 200, 1000)] == [5, 5, 11, 51]


def test_binned_means_by_hand():
    x = np.array([1, 1, 2, 2, 3, 3, 4, 4.0])
    y = np.array([0, 0, 2, 2, 5, 5, 5, 5.0])
    at, mean, error = statistics.binned_means(x, y, bins=2)
    assert (at.tolist(), mean.tolist()) == ([1.5, 3.5], [1, 5])
    assert error.tolist() == near([math.sqrt(4 / 3) / 2, 0])
    at, mean, _ = statistics.binned_means(np.array([7.0, 7.0]), np.array([1.0, 3.0]))
    assert (at.tolist(), mean.tolist()) == ([7], [2])


def test_differences_by_hand():
    # Newcombe 1998, table II, example (a): 56/70 against 48/80
    assert statistics.unpaired_difference(48, 80, 56, 70) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    # weights 1/2, 1/2; variances 1/4, 1/4 of a and 1/4, 0 of b: 3/16
    half = 1.96 * math.sqrt(3 / 16)
    assert statistics.auc_difference([0.5, 0.5, 0.9], 1, [0.5, 1.0], 1) == near(
        (0.25, 0.25 - half, 0.25 + half)
    )
    assert statistics.auc_difference([0.5], 1, [1.0], 1) == near((0.5, 0.5 - 0.98, 0.5 + 0.98))
    # differences 0.1, 0.2, 0.3: deviation 0.1, t of two degrees 4.303
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert statistics.t_difference([0.1, 0.2, 0.3], [0.2, 0.4, 0.6]) == pytest.approx(
        (0.2, 0.2 - half, 0.2 + half)
    )
    assert statistics.t_difference([0.1], [0.2]) == near((0.1, -math.inf, math.inf))


@pytest.mark.parametrize(
    "degrees, t",
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (10, 2.228), (29, 2.045), (120, 1.980)],
)
def test_t_quantile_is_that_of_the_tables(degrees, t):
    assert statistics.t_quantile(degrees) == pytest.approx(t, abs=5e-4)


# --- the page of a run


def test_a_finished_run(tmp_path):
    page = Page(write_report(make_run(tmp_path / "run")))
    for words in (
        "SPO++, seed 0",
        "finished",
        "3 of 3",
        "6 training episodes",
        "(AUC) 0.400",  # (0.3 + 0.5) / 2
        "Brier score 0.250 (a constant guess: 0.250) · expected calibration error 0.000",
        "-0.354 by trajectory whitening, +0.000 as used",
        "+75.0",  # three of four held-out games are won after training, none before
        "training 1 min 00 s",
        "optimisation.prompts_per_step 2",
    ):
        assert words in page.text
    assert ("http-equiv", "refresh") not in page.attributes
    assert "Not there yet" not in page.text
    assert page.tags.count("svg") == 12


def test_what_the_trainer_writes_is_what_the_report_reads(small_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(small_run[0], run)
    page = Page(write_report(run))
    assert "Not there yet" not in page.text and "nan" not in page.text
    assert "finished" in page.text and "2 of 2" in page.text
    assert ("class", "badge lost") in page.attributes


def test_the_change_is_paired_by_game(tmp_path):
    page = Page(write_report(make_run(tmp_path / "run")))
    change, low, high = (100 * x for x in paired_difference([0, 0, 0, 0], [1, 1, 0, 1]))
    assert f"{change:+.1f} [{low:+.1f}, {high:+.1f}], paired by game" in page.text


def test_a_run_that_goes_on_reloads_its_page(tmp_path):
    page = Page(write_report(make_run(tmp_path / "run", finished=False)))
    assert ("http-equiv", "refresh") in page.attributes
    assert "no result yet" in page.text and "of training so far" in page.text


def test_a_run_that_has_just_started(tmp_path):
    run = make_run(tmp_path / "run", finished=False)
    for log in run.glob("*.jsonl"):
        log.unlink()
    page = Page(write_report(run))
    assert page.tags.count("svg") == 0
    assert page.text.count("Not there yet") == 13  # every chart, and the transcripts
    assert "0 of 3" in page.text


@pytest.mark.parametrize("log", ["metrics", "episodes", "transcripts", "resources", "evaluations"])
def test_each_log_may_be_missing_empty_or_half_a_line(tmp_path, log):
    run = make_run(tmp_path / "run", finished=False)
    path = run / f"{log}.jsonl"
    whole = path.read_text()
    for text in (whole[: len(whole) // len(whole.splitlines()) // 2], "", None):
        path.unlink() if text is None else path.write_text(text)
        assert "Not there yet" in Page(write_report(run)).text


def test_old_lines_and_numbers_that_are_none(tmp_path):
    run = make_run(tmp_path / "run", finished=False)
    write_lines(
        run / "metrics.jsonl", [{"step": 1, "success": 1.0}, {"step": 2, "success": math.nan, "ess": None}]
    )
    text = Page(write_report(run)).text
    assert "(AUC) 1.000" in text and "2 of 3" in text


@pytest.mark.parametrize(
    "log, line, fault",
    [
        ("episodes", "{half", "line 2 is damaged"),
        ("metrics", "[1]", "line 2 is damaged: expected an object, got list"),
        (
            "metrics",
            '{"step": 2, "success": "high"}',
            "line 2 is damaged: success: expected a number, got 'high'",
        ),
        (
            "evaluations",
            '{"step": 2, "outcomes": 3}',
            "line 2 is damaged: expected outcomes and task_types by task",
        ),
        ("evaluations", '{"outcomes": {}}', "line 2 is damaged: it has no step"),
        ("transcripts", '{"step": 2, "turns": [{}]}', "line 2 is damaged"),
        ("transcripts", '{"step": 2, "turns": 3}', "line 2 is damaged"),
    ],
)
def test_a_damaged_line_is_named_and_the_old_page_stays(tmp_path, log, line, fault):
    run = make_run(tmp_path / "run")
    old = write_report(run).read_bytes()
    path = run / f"{log}.jsonl"
    first, _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *rest, ""]))
    with pytest.raises(ValueError, match=re.escape(f"{log}.jsonl: {fault}")):
        write_report(run)
    assert (run / "report.html").read_bytes() == old
    assert not list(run.glob(".report*"))


def test_a_damaged_summary_is_named(tmp_path):
    run = make_run(tmp_path / "run")
    (run / "summary.json").write_text('{"before": 3}')
    with pytest.raises(ValueError, match=r"summary\.json is damaged"):
        write_report(run)


def test_no_run_folder(tmp_path):
    with pytest.raises(ValueError, match="not a run folder"):
        write_report(tmp_path)


def test_the_same_logs_give_the_same_page(tmp_path):
    run = make_run(tmp_path / "run")
    before = dict(matplotlib.rcParams)
    assert write_report(run).read_bytes() == write_report(run).read_bytes()
    assert dict(matplotlib.rcParams) == before


# --- nothing from outside gets into the page as more than text


def test_words_of_games_and_models_are_only_text(tmp_path):
    evil = Page(write_report(make_run(tmp_path / "a", word=EVIL)))
    tame = Page(write_report(make_run(tmp_path / "b", word=TAME)))
    assert evil.tags == tame.tags
    assert [name for name, _ in evil.attributes] == [name for name, _ in tame.attributes]
    assert evil.source.count("<script") == 0 and "script" not in evil.tags
    assert "<script>alert(1)</script></svg></p></i>\"'>" in evil.text and "<|im_start|>" in evil.text
    assert "{{ 7*7 }}" in evil.text
    assert evil.source == clean(evil.source)  # no control characters, lone surrogates, forced directions


@pytest.mark.parametrize("word", ["go", EVIL])
def test_a_page_needs_nothing_from_elsewhere(tmp_path, word):
    runs = [make_run(tmp_path / name, word=word) for name in ("a", "b")]
    for path in (write_report(runs[0]), write_comparison(runs, tmp_path / "both.html")):
        page = Page(path)
        for name, value in page.attributes:
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("#", "data:image/png;base64,"))
            else:
                assert "url(" not in (value or "").replace("url(#", "")
        assert not {"script", "link", "iframe", "object", "embed", "img", "base"} & set(page.tags)
        assert "@import" not in page.source
        assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in page.attributes


def test_no_reference_leads_into_another_chart(tmp_path):
    with style():
        pictures = [chart.svg for chart in charts(load_run(make_run(tmp_path / "run")))]
    ids = [set(re.findall(r' id="([^"]+)"', svg)) for svg in pictures]
    assert sum(map(len, ids)) == len(set().union(*ids))
    for own, svg in zip(ids, pictures, strict=True):
        assert set(re.findall(r'(?:url\(|href=")#([^")]+)', svg)) <= own


def test_every_chart_says_how_to_read_it(tmp_path):
    with style():
        for chart in charts(load_run(make_run(tmp_path / "run"))):
            assert chart.reading.endswith(".") and len(chart.reading.split()) > 10, chart.title


def test_tokens_show_their_log_prob_and_advantage(tmp_path):
    page = Page(write_report(make_run(tmp_path / "run")))
    assert ("title", "log-prob -0.500, probability 0.607") in page.attributes
    shades = {value for name, value in page.attributes if name == "style" and "--shade" in value}
    # green and strong for +1.5, red and weak for -0.5
    assert any("22, 163, 74, 0.350" in s for s in shades) and any("220, 38, 38, 0.150" in s for s in shades)


def test_a_few_transcripts_of_many(tmp_path):
    page = Page(write_report(make_run(tmp_path / "run", rewards=[0.5] * 20)))
    assert "12 of 40 are shown" in page.text
    assert "update 1 ·" in page.text and "update 20 ·" in page.text


# --- runs against each other


def test_held_out_games_are_paired_by_task(tmp_path):
    a = load_run(make_run(tmp_path / "a", after=(0, 0, 1, 1)))
    b = load_run(make_run(tmp_path / "b", after=(1, 1, 1, 1)))
    # differences 1, 1, 0, 0: deviation sqrt(1/3)
    half = 1.96 * math.sqrt(1 / 3) / 2
    assert held_out_difference(a, b) == (near((0.5, 0.5 - half, 0.5 + half)), "paired by game: 4 games")


def test_held_out_games_that_only_some_share(tmp_path):
    a = load_run(make_run(tmp_path / "a", word="go", after=(0, 0, 1, 1)))
    b = load_run(make_run(tmp_path / "b", word="look", after=(1, 1, 1, 1)))
    difference, how = held_out_difference(a, b)
    assert difference[0] == near(1 / 3)
    assert how == "paired by game: the 3 games that both played, of 4 and 4"


def test_held_out_games_of_which_none_is_shared(tmp_path):
    a, b = (load_run(make_run(tmp_path / name)) for name in "ab")
    b.evaluations[1] = Evaluation(3, {"x": 1.0, "y": 1.0}, {"x": "b", "y": "b"})
    difference, how = held_out_difference(a, b)
    assert difference == near(statistics.unpaired_difference(3, 4, 2, 2))
    assert how == "unpaired, they share no game: 4 and 2 games"


def test_a_run_without_its_last_evaluation(tmp_path):
    a, b = (load_run(make_run(tmp_path / name, finished=False)) for name in "ab")
    del b.evaluations[1]
    assert held_out_difference(a, b) == (None, "not there yet")


def test_two_algorithms_are_paired_by_seed(tmp_path):
    runs = [
        make_run(tmp_path / "one", algorithm="spo", seed=1, after=(0, 0, 0, 1)),
        make_run(tmp_path / "two", algorithm="spo", seed=2, after=(0, 0, 1, 1)),
        make_run(tmp_path / "three", algorithm="spo++", seed=2, after=(1, 1, 1, 1)),
        make_run(tmp_path / "four", algorithm="spo++", seed=1, after=(0, 0, 1, 1)),
    ]
    page = Page(write_comparison(runs, tmp_path / "both.html"))
    # by seed 1/4 and 1/2: mean 3/8, deviation sqrt(2)/8, t of one degree 12.706
    half = 100 * 12.7062047 / 8
    assert f"+37.5 [{37.5 - half:+.1f}, {37.5 + half:+.1f}] +25.0 +50.0" in page.text
    assert "spo++ minus spo, in points, over seeds 1, 2" in page.text
    assert "Each row is that run minus one" in page.text


@pytest.mark.parametrize(
    "others, why",
    [
        ([("spo++", 1)], "of one algorithm"),
        ([("spo", 1)], "different seeds (spo++: 0; spo: 1)"),
        ([("spo", 0), ("spo", 0)], "several runs with one seed"),
    ],
)
def test_runs_that_cannot_be_paired_by_seed(tmp_path, others, why):
    runs = [make_run(tmp_path / "first")]
    runs += [
        make_run(tmp_path / f"other-{i}", algorithm=algorithm, seed=seed)
        for i, (algorithm, seed) in enumerate(others)
    ]
    page = Page(write_comparison(runs, tmp_path / "both.html"))
    assert why in page.text
    assert page.tags.count("svg") == 8


def test_updates_of_different_sizes_are_laid_over_each_other_by_episodes(tmp_path):
    runs = [make_run(tmp_path / name, batch=batch) for name, batch in (("a", 2), ("b", 4))]
    text = Page(write_comparison(runs, tmp_path / "both.html")).text
    assert "training episodes" in text and "the first 3 updates of both, of 2 and 4 episodes" in text


def test_runs_of_one_name_are_told_apart(tmp_path):
    runs = [make_run(tmp_path / name / "run") for name in "ab"]
    page = Page(write_comparison(runs, tmp_path / "both.html"))
    assert all(str(run) in page.text for run in runs)


def test_many_runs_have_colours_of_their_own(tmp_path):
    runs = [make_run(tmp_path / f"run-{i}", seed=i) for i in range(10)]
    page = Page(write_comparison(runs, tmp_path / "all.html"))
    assert len(set(re.findall(r"color: (#\w{6})\"></i>run-", page.source))) == 10


def test_runs_that_have_just_started_can_be_compared(tmp_path):
    runs = [make_run(tmp_path / name, finished=False) for name in "ab"]
    for log in runs[0].glob("*.jsonl"):
        log.unlink()
    assert "not there yet" in Page(write_comparison(runs, tmp_path / "both.html")).text
    for log in runs[1].glob("*.jsonl"):
        log.unlink()
    assert "Still without a result: a, b" in Page(write_comparison(runs, tmp_path / "both.html")).text


def test_what_cannot_be_compared(tmp_path):
    run, output = make_run(tmp_path / "run"), tmp_path / "both.html"
    (tmp_path / "link").symlink_to(run)
    for runs, fault in (
        ([run], "expected at least two run folders to compare, got 1"),
        ([run, tmp_path / "link"], "link is named twice"),
        ([run, tmp_path], "not a run folder"),
    ):
        with pytest.raises(ValueError, match=fault):
            write_comparison(runs, output)
    assert not output.exists()


# --- the drawing and the words


def test_a_zero_has_no_minus():
    assert [signed(x) for x in (-1e-9, 0.0, -0.0005001, 2)] == ["+0.000", "+0.000", "-0.001", "+2.000"]


def test_a_log_scale_where_values_span_a_decade():
    with style():
        plot = Plot("x", "above", "below")
        plot.log_scale(0, np.array([1.0, 50.0, math.nan]))
        plot.log_scale(1, np.array([1.0, 3.0]))
        assert [axes.get_yscale() for axes in plot.axes] == ["log", "linear"]
