from __future__ import annotations

import pytest

from intarsia.audit.config import choose_studies, make_config, parse_settings, read_config, study_options
from intarsia.core.errors import ConfigError
from tests.audit.small_study import Echo, Needy


def test_unknown_key_names_the_nearest():
    with pytest.raises(ConfigError, match=r"no 'budgett'.*Did you mean 'budget'"):
        make_config({"models": ["m"], "budgett": "quick"})


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"models": []}, "models"),
        ({"models": ["m", "m"]}, "named twice"),
        ({"models": ["m"], "budget": "huge"}, "budget"),
        ({"models": ["m"], "template": "no place"}, r"\{question\}"),
        ({"models": ["m"], "baseline": "other"}, "not among the models"),
        ({"models": ["m"], "mapping": {"question": "q"}}, "no data"),
        ({"models": ["m"], "version": 2}, "version 2"),
        ({"models": ["m"], "seed": -1}, "seed"),
    ],
)
def test_wrong_values_are_one_line(values, words):
    with pytest.raises(ConfigError, match=words) as caught:
        make_config(values)
    assert "\n" not in str(caught.value)


def test_settings_are_yaml_per_study():
    assert parse_settings(["a.sets=[x, y]", "a.items=3", "b.on=true"]) == {
        "a": {"sets": ["x", "y"], "items": 3},
        "b": {"on": True},
    }


@pytest.mark.parametrize("setting", ["items=3", "a.items", ".x=1", "a.=1", "a.x=[1"])
def test_malformed_settings_are_refused(setting):
    with pytest.raises(ConfigError):
        parse_settings([setting])


def test_studies_keep_their_order_and_unknown_ones_are_named():
    available = {"echo": Echo(), "needy": Needy()}
    assert [s.name for s in choose_studies(available, ["needy", "echo"])] == ["echo", "needy"]
    assert len(choose_studies(available, [])) == 2
    with pytest.raises(ConfigError, match="Did you mean 'echo'"):
        choose_studies(available, ["ecko"])


def test_study_options_are_checked():
    assert study_options(Echo(), {"items": 5}).items == 5
    with pytest.raises(ConfigError, match="Did you mean 'items'"):
        study_options(Echo(), {"item": 5})
    with pytest.raises(ConfigError, match="items = 'many'"):
        study_options(Echo(), {"items": "many"})


def test_config_files(tmp_path):
    good = tmp_path / "audit.yaml"
    good.write_text("models: [a]\nbudget: smoke\n")
    assert read_config(good)["budget"] == "smoke"
    for content in (b"- a\n- b\n", b"a: [", b"\xff\xfe\x00"):
        good.write_bytes(content)
        with pytest.raises(ConfigError):
            read_config(good)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_config(tmp_path / "missing.yaml")
