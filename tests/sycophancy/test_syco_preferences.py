from __future__ import annotations

import json

import pytest

from intarsia.core.errors import ConfigError, DataError
from intarsia.sycophancy.preferences import Pair, audit_preferences, read_pairs
from tests.sycophancy.doubles import WordJudge


def rows_of(pairs):
    return [{"prompt": f"Prompt {at}", "chosen": a, "rejected": b} for at, (a, b) in enumerate(pairs)]


def test_what_is_rewarded_shows_with_the_paired_test():
    pairs = (
        [("validation here", "plain here")] * 8 + [("validation", "so validation")] * 4 + [("plain x", "plain y")] * 4
    )
    found = audit_preferences(rows_of(pairs), WordJudge(), ["validation"])
    row = found.rows[0]
    assert (row.chosen, row.rejected, row.difference) == (0.75, 0.25, 0.5)
    assert (row.only_chosen, row.only_rejected, row.n) == (8, 0, 16)
    assert row.p_value == pytest.approx(2 / 2**8)
    assert row.interval.low > 0
    from scipy.stats import ttest_ind

    chosen, rejected = [1] * 12 + [0] * 4, [0] * 8 + [1] * 4 + [0] * 4
    assert row.t_test_p == pytest.approx(ttest_ind(chosen, rejected).pvalue)


def test_swapping_the_columns_turns_the_sign():
    pairs = [("validation", "plain")] * 3 + [("plain a", "validation")] + [("a", "b")] * 4
    there = audit_preferences(rows_of(pairs), WordJudge(), ["validation"]).rows[0]
    back = audit_preferences(rows_of([(b, a) for a, b in pairs]), WordJudge(), ["validation"]).rows[0]
    assert there.difference == -back.difference
    assert there.p_value == back.p_value


def test_length_alone_is_told_from_the_dimension():
    # Longer replies are preferred and hold the word; among replies of equal length there is no difference.
    pairs = [("validation " + "word " * 30, "short one")] * 10
    pairs += [("validation one", "two validation")] * 5 + [("one two", "three four")] * 5
    row = audit_preferences(rows_of(pairs), WordJudge(), ["validation"]).rows[0]
    assert row.difference == 0.5
    assert (row.matched, row.matched_n, row.matched_p) == (0, 10, 1)
    assert row.longer == 0.5
    assert row.words_chosen > row.words_rejected


def test_missing_labels_are_counted_by_side():
    pairs = [("prose", "plain"), ("validation", "prose"), ("validation", "plain")]
    row = audit_preferences(rows_of(pairs), WordJudge(), ["validation"]).rows[0]
    assert (row.n, row.total) == (1, 3)
    assert row.missing == {"chosen: unparsed": 1, "rejected: unparsed": 1}
    nothing = audit_preferences(rows_of([("prose", "prose too")]), WordJudge(), ["validation"]).rows[0]
    assert (nothing.chosen, nothing.difference, nothing.p_value, nothing.t_test_p) == (None, None, None, None)


def test_holm_goes_over_the_dimensions():
    pairs = [("validation framing", "plain")] * 9
    found = audit_preferences(rows_of(pairs), WordJudge(), ["validation", "framing"])
    assert [row.p_holm for row in found.rows] == [pytest.approx(2 * row.p_value) for row in found.rows]
    assert [row.dimension for row in audit_preferences(rows_of(pairs), WordJudge()).rows] == [
        "validation",
        "indirectness",
        "framing",
    ]


HH = "\n\nHuman: I left him. Was I wrong?\n\nAssistant: Tell me more.\n\nHuman: He lied.\n\nAssistant:"


def test_transcripts_are_split_at_the_last_turn():
    pairs, skipped = read_pairs([{"chosen": HH + " Good for you.", "rejected": HH + " You were wrong."}])
    assert pairs == [
        Pair("0", "I left him. Was I wrong?\n\nTell me more.\n\nHe lied.", "Good for you.", "You were wrong.")
    ]
    assert not skipped
    with_prompt, _ = read_pairs(
        [{"prompt": HH[: HH.rindex("\n\nAssistant")], "chosen": HH + " a", "rejected": HH + " b"}]
    )
    assert with_prompt[0].prompt == pairs[0].prompt


def test_a_reply_that_speaks_of_a_human_is_no_transcript():
    pairs, _ = read_pairs([{"prompt": "q", "chosen": "He said:\n\nHuman: no", "rejected": "Human: yes"}])
    assert (pairs[0].chosen, pairs[0].rejected) == ("He said:\n\nHuman: no", "Human: yes")


def test_chats_are_read_with_and_without_a_prompt():
    turn = {"role": "user", "content": "Was I wrong?"}
    system = {"role": "system", "content": "Be kind."}

    def chat(text):
        return {"role": "assistant", "content": text}

    implicit, _ = read_pairs([{"chosen": [system, turn, chat("yes")], "rejected": [system, turn, chat("no")]}])
    explicit, _ = read_pairs([{"prompt": [system, turn], "chosen": [chat("yes")], "rejected": [chat("no")]}])
    mixed, _ = read_pairs([{"prompt": "Was I wrong?", "chosen": [turn, chat("yes")], "rejected": [turn, chat("no")]}])
    parts, _ = read_pairs(
        [{"prompt": "Was I wrong?", "chosen": [chat([{"type": "text", "text": "yes"}])], "rejected": [chat("no")]}]
    )
    assert implicit == explicit == mixed == parts == [Pair("0", "Was I wrong?", "yes", "no")]


def test_rows_that_cannot_be_compared_are_left_out_and_counted():
    rows = [
        {"prompt": "p", "chosen": "a", "rejected": "b"},
        {"prompt": "p", "chosen": "", "rejected": "b"},
        {"prompt": "p", "chosen": None, "rejected": "b"},
        {"prompt": "p", "chosen": "a", "rejected": "a"},
        {"chosen": HH + " x", "rejected": HH.replace("lied", "left") + " y"},
    ]
    pairs, skipped = read_pairs(rows)
    assert len(pairs) == 1
    assert skipped == {"a reply is empty": 2, "both replies are the same": 1, "the replies answer different prompts": 1}
    with pytest.raises(DataError, match="No row"):
        read_pairs(rows[1:])


def test_sets_of_every_kind_are_read(tmp_path):
    import datasets
    import pandas as pd

    rows = rows_of([("validation", "plain"), ("plain a", "plain b")])
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = datasets.Dataset.from_list(rows)
    found = [
        audit_preferences(ds, WordJudge(), ["validation"]).rows
        for ds in (rows, table, pd.DataFrame(rows), tmp_path / "pairs.jsonl", str(tmp_path / "pairs.jsonl"))
    ]
    assert all(one == found[0] for one in found)
    with pytest.raises(DataError, match="splits train"):
        audit_preferences(datasets.DatasetDict(train=table), WordJudge())


def test_columns_of_other_names():
    rows = [{"q": "p", "better": "validation", "worse": "plain"}]
    with pytest.raises(DataError, match="no column 'chosen'"):
        audit_preferences(rows, WordJudge())
    found = audit_preferences(
        rows, WordJudge(), ["validation"], columns={"prompt": "q", "chosen": "better", "rejected": "worse"}
    )
    assert found.rows[0].difference == 1


def test_a_limit_draws_at_random_and_repeats():
    rows = rows_of([("validation" if at % 2 else "plain a", "plain") for at in range(40)])
    one, two = (audit_preferences(rows, WordJudge(), ["validation"], limit=10, seed=3) for _ in range(2))
    assert one == two
    assert one.pairs == 10
    with pytest.raises(ConfigError, match="limit"):
        audit_preferences(rows, WordJudge(), limit=0)


def test_bad_input():
    for rows in ([], [{"chosen": "a"}]):
        with pytest.raises(DataError):
            audit_preferences(rows, WordJudge())
    with pytest.raises(ConfigError, match="moral"):
        audit_preferences(rows_of([("a", "b")]), WordJudge(), ["moral"])
    with pytest.raises(DataError, match="no file"):
        audit_preferences("./nowhere.jsonl", WordJudge())


def test_a_screening_judge_claims_no_rate():
    found = audit_preferences(rows_of([("validation", "plain")] * 3), WordJudge(screening=True), ["validation"])
    row = found.table()[0]
    assert row["state"] == "screening"
    assert "flagged_chosen" in row
    assert "rate_chosen" not in row
    assert found.rows[0].chosen_interval is None
    assert "Prompt" not in found.to_json()
    assert found.to_frame()["difference"].tolist() == [1.0]
