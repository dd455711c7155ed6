"""Valid names of images, and errors about invalid ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InvalidInput
from muster.images.reference import Reference, read_base, read_tag

DIGEST = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("train", ("", "train", "latest")),
        ("train:1", ("", "train", "1")),
        ("team/train:V1.4_x-2", ("", "team/train", "V1.4_x-2")),
        ("localhost/train:1", ("localhost", "train", "1")),
        ("127.0.0.1:5000/a/b__c/d--e:1", ("127.0.0.1:5000", "a/b__c/d--e", "1")),
        ("reg:5000/train", ("reg:5000", "train", "latest")),
        ("[::1]:5000/train:1", ("[::1]:5000", "train", "1")),
        ("iad.ocir.io/space/train:1", ("iad.ocir.io", "space/train", "1")),
        ("Registry.example.com/train:1", ("Registry.example.com", "train", "1")),
    ],
)
def test_names_are_split_into_parts(text: str, parts: tuple[str, str, str]) -> None:
    assert read_tag(text) == Reference(*parts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--tag: '' is empty (write REGISTRY/NAME:TAG, as in "),
        ("Train:1", "only the tag may have them (did you mean train:1?)"),
        ("https://reg.io/train:1", "starts like a URL (did you mean reg.io/train:1?)"),
        ("my train:1", "contains a space (did you mean my-train:1?)"),
        ("train:1.0+cu12", "has + in its tag; allowed are letters, digits and _ . - (did you mean "
         "train:1.0-cu12?)"),
        ("train:", "has nothing after its colon (did you mean train?)"),
        ("train:.5", "has a tag that starts with . (did you mean train:5?)"),
        ("train:" + "x" * 129, "has a tag of more than 128 characters"),
        ("train:1:2", "has : in its tag"),
        ("reg.io/", "has no name, only a registry"),
        ("reg.io/train/:1", "has an extra /"),
        ("reg.io//train:1", "has an extra /"),
        ("team:x/train:1", "has the registry 'team:x', which is not HOST or HOST:PORT"),
        ("reg_io.x/train:1", "has the registry 'reg_io.x'"),
        ("train_:1", "has 'train_' in its name"),
        ("a/" * 130 + "b:1", "is longer than 255 characters"),
        (f"train:1@{DIGEST}", "has a digest, which is computed from the image"),
    ],
)  # fmt: skip
def test_problems_of_a_name_are_explained(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_tag(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["me:hunter2@reg.io/a:1", "https://me:hunter2@reg.io/a:1"])
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(InvalidInput, match="contains a password") as caught:
        read_tag(text)
    assert "hunter2" not in str(caught.value)


def test_all_problems_of_a_name_are_reported_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        read_tag("reg.io/Train:+")
    assert [p.message.partition(" ")[2] for p in caught.value.problems] == [
        "has upper-case letters in its name; only the tag may have them",
        "has + in its tag; allowed are letters, digits and _ . -",
    ]


@pytest.mark.parametrize("text", [f"python@{DIGEST}", f"reg.io/python:3@{DIGEST}", "python:3"])
def test_a_base_may_be_pinned(text: str) -> None:
    assert str(read_base(text)) == text


def test_a_wrong_digest_is_reported() -> None:
    with pytest.raises(InvalidInput, match="which is not of the form sha256:HEX"):
        read_base("python@sha256:12")


@given(st.text(max_size=60))
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = read_tag(text)
    except InvalidInput:
        return
    assert read_tag(str(name)) == name


@given(st.from_regex(r"[ -~]{1,40}", fullmatch=True))
def test_suggested_names_are_valid(text: str) -> None:
    try:
        read_tag(text)
    except InvalidInput as error:
        hint = error.problems[0].hint
        if hint.startswith("did you mean "):
            read_tag(hint.removeprefix("did you mean ").removesuffix("?"))
