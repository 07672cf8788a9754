"""The twin: the same everywhere, small, and neither too easy nor impossible."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from rapid_lab.data.examples import Examples
from rapid_lab.data.twin import TWINS, TwinParameters, make_split, twin_vocabulary

DATASETS = pytest.mark.parametrize("dataset", TWINS)
PLAIN = replace(TWINS["agnews"], ambiguous_share=0.0, label_noise=0.0, topic_share=1.0)


def topics_of(texts: list[str], parameters: TwinParameters, dataset: str = "agnews") -> list[Counter[int]]:
    """How many words of each topic the texts have."""
    words = enumerate(twin_vocabulary(dataset, parameters))
    topic = {word: position // parameters.topic_words for position, word in words}
    return [Counter(topic[word] for word in text.split() if topic[word] < parameters.classes) for text in texts]


def make_twin(dataset: str) -> tuple[Examples, Examples]:
    return make_split(dataset, "train"), make_split(dataset, "report")


@DATASETS
def test_the_corpus_is_the_same_every_time_whatever_else_was_drawn(dataset: str) -> None:
    first = make_twin(dataset)
    torch.rand(7)
    assert make_twin(dataset) == first


@DATASETS
def test_sizes_lengths_and_classes_are_those_of_the_parameters(dataset: str) -> None:
    parameters = TWINS[dataset]
    train, report = make_twin(dataset)
    assert (len(train), len(report)) == (parameters.train_count, parameters.report_count)
    lengths = {len(text.split()) for text in train.texts}
    assert (min(lengths), max(lengths)) == (parameters.shortest_text, parameters.longest_text)
    assert set(train.labels) == set(report.labels) == set(range(parameters.classes))


def test_the_paper_has_four_and_two_classes() -> None:
    assert {dataset: parameters.classes for dataset, parameters in TWINS.items()} == {"agnews": 4, "sst2": 2}


@DATASETS
def test_every_word_is_in_the_vocabulary_and_no_word_is_there_twice(dataset: str) -> None:
    words = twin_vocabulary(dataset)
    assert len(words) == len(set(words))
    used = {word for examples in make_twin(dataset) for text in examples.texts for word in text.split()}
    assert used <= set(words)


@DATASETS
def test_no_report_text_is_a_training_text(dataset: str) -> None:
    train, report = make_twin(dataset)
    assert not set(train.texts) & set(report.texts)


def test_without_noise_and_ambiguity_every_topic_word_is_of_the_label() -> None:
    train = make_split("agnews", "train", PLAIN)
    assert [set(topics) for topics in topics_of(train.texts, PLAIN)] == [{label} for label in train.labels]


def test_an_ambiguous_text_mixes_two_topics() -> None:
    parameters = replace(PLAIN, ambiguous_share=1.0, borrowed_share=0.5)
    mixed = topics_of(make_split("agnews", "train", parameters).texts, parameters)
    assert all(len(topics) <= 2 for topics in mixed)
    assert any(len(topics) == 2 for topics in mixed)


@pytest.mark.parametrize("split", ["train", "report"])
def test_noise_moves_labels_and_leaves_texts(split: str) -> None:
    """The same draws decide with and without noise, so exactly the labels below the threshold differ."""
    clean, noisy = (make_split("agnews", split, replace(PLAIN, label_noise=share)) for share in (0.0, 0.5))
    assert clean.texts == noisy.texts
    moved = sum(a != b for a, b in zip(clean.labels, noisy.labels, strict=True)) / len(clean)
    # Seven standard deviations of a share of 1,000 draws: wrong once in 10^11 corpora, and this one is fixed.
    assert abs(moved - 0.5) < 7 * (0.25 / len(clean)) ** 0.5


def test_the_first_words_of_a_topic_are_the_frequent_ones() -> None:
    words = Counter(word for text in make_split("agnews", "train", PLAIN).texts for word in text.split())
    topic = [words[word] for word in twin_vocabulary("agnews", PLAIN)[: PLAIN.topic_words]]
    assert topic[0] > topic[9] > topic[-1]


@DATASETS
def test_the_teacher_can_reach_ninety_per_cent_and_nobody_a_hundred(dataset: str) -> None:
    """By counting words of each topic, which takes no training and is close to the best that can be done."""
    report = make_split(dataset, "report")
    guesses = [
        max(topics, key=topics.__getitem__, default=0) for topics in topics_of(report.texts, TWINS[dataset], dataset)
    ]
    correct = sum(guess == label for guess, label in zip(guesses, report.labels, strict=True))
    assert 0.90 < correct / len(report) < 0.99
