"""The twin: a corpus generated in code, for machines without data.

A text is a bag of made-up words. Most are shared by all classes, some belong to the topic of the text's class, and
both kinds follow a Zipf law, so that many words of a topic are rare. An ambiguous text borrows a part of its topic
words from another class. A label is noise with a fixed probability, in the report split as in training: the best
accuracy there is, therefore, is below 1 - label_noise, as it would be for real labels.

The parameters are chosen looking at the teacher and the student trained on labels alone, never at another method.
"""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from rapid_lab.data.examples import Examples
from rapid_lab.seeds import stream

CONSONANTS, VOWELS, ENDINGS = "bdfgklmnprstvz", "aeiou", ("", "l", "n", "r", "s")


@dataclass(frozen=True, kw_only=True)
class TwinParameters:
    """Everything the corpus depends on."""

    classes: int
    topic_words: int = 380  # words that belong to one class, for each class
    shared_words: int = 400  # words that tell nothing
    zipf_power: float = 0.4  # how much more frequent the first words of a topic are than its last
    shortest_text: int = 8
    longest_text: int = 24
    topic_share: float = 0.42  # of the words of a text
    ambiguous_share: float = 0.15  # of the texts
    borrowed_share: float = 0.35  # of the topic words of an ambiguous text
    label_noise: float = 0.01
    train_count: int = 2000
    report_count: int = 1000
    corpus_seed: int = 1729


TWINS = {
    "agnews": TwinParameters(classes=4),
    # Two classes are told apart more easily: more of its texts are ambiguous.
    "sst2": TwinParameters(classes=2, ambiguous_share=0.3),
}


def make_split(dataset: str, split: str, parameters: TwinParameters | None = None) -> Examples:
    """One split; each has its own stream, so neither depends on the size of the other."""
    parameters = parameters or TWINS[dataset]
    count = parameters.train_count if split == "train" else parameters.report_count
    generator = stream(parameters.corpus_seed, f"twin/{dataset}/{split}")
    topics = torch.randint(parameters.classes, (count,), generator=generator)
    words = _draw_words(topics, parameters, generator)
    lengths = _draw_integers(parameters.shortest_text, parameters.longest_text, count, generator)
    labels = _with_noise(topics, parameters, generator)
    vocabulary = twin_vocabulary(dataset, parameters)
    texts = [
        " ".join(vocabulary[word] for word in row[:length])
        for row, length in zip(words.tolist(), lengths.tolist(), strict=True)
    ]
    return Examples(texts, labels.tolist())


def twin_vocabulary(dataset: str, parameters: TwinParameters | None = None) -> list[str]:
    """Every word of the twin: the topics in order, then the shared words."""
    parameters = parameters or TWINS[dataset]
    size = parameters.classes * parameters.topic_words + parameters.shared_words
    syllables = ["".join(pair) for pair in product(CONSONANTS, VOWELS)]
    lexicon = ["".join(parts) for parts in product(syllables, syllables, ENDINGS)]
    order = torch.randperm(len(lexicon), generator=stream(parameters.corpus_seed, f"twin/{dataset}/words"))
    return [lexicon[position] for position in order[:size].tolist()]


def _draw_words(topics: Tensor, parameters: TwinParameters, generator: torch.Generator) -> Tensor:
    """Positions in the vocabulary, a row of the longest length for each text."""
    shape = (len(topics), parameters.longest_text)
    others = _another_class(topics, parameters.classes, generator)
    is_ambiguous = torch.rand(len(topics), generator=generator) < parameters.ambiguous_share
    is_borrowed = torch.rand(shape, generator=generator) < parameters.borrowed_share
    topic = torch.where(is_ambiguous[:, None] & is_borrowed, others[:, None], topics[:, None])
    topic_word = topic * parameters.topic_words + _draw_ranks(parameters.topic_words, shape, parameters, generator)
    shared_word = _draw_ranks(parameters.shared_words, shape, parameters, generator)
    shared_word = shared_word + parameters.classes * parameters.topic_words
    is_topic = torch.rand(shape, generator=generator) < parameters.topic_share
    return torch.where(is_topic, topic_word, shared_word)


def _draw_ranks(count: int, shape: tuple[int, int], parameters: TwinParameters, generator: torch.Generator) -> Tensor:
    """Ranks 0..count-1 with probability proportional to 1 / (rank + 1)^power, by the inverse CDF."""
    weights = torch.arange(1, count + 1, dtype=torch.float64) ** -parameters.zipf_power
    ends = weights.cumsum(0) / weights.sum()
    draws = torch.rand(shape, generator=generator, dtype=torch.float64)
    return torch.searchsorted(ends, draws, right=True).clamp(max=count - 1)


def _with_noise(topics: Tensor, parameters: TwinParameters, generator: torch.Generator) -> Tensor:
    is_noise = torch.rand(len(topics), generator=generator) < parameters.label_noise
    return torch.where(is_noise, _another_class(topics, parameters.classes, generator), topics)


def _another_class(topics: Tensor, classes: int, generator: torch.Generator) -> Tensor:
    """A class other than the text's own, uniformly."""
    shift = torch.randint(1, classes, (len(topics),), generator=generator)
    return (topics + shift) % classes


def _draw_integers(low: int, high: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.randint(low, high + 1, (count,), generator=generator)
