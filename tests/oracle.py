"""Independent oracle of Algorithm 1: plain Python, one function per equation, nothing of the package.

Written from the paper (sections 3.1 to 3.6 and its appendix) and the specification alone. Slow on purpose:
every sum is a loop over every pair, so that it can be read line by line beside the equations.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

Row = list[float]
Matrix = list[Row]
Pair = tuple[int, int]  # unordered: either order may be given, i < j is what comes back
RowGradient = dict[int, Row]  # the gradient of one pair: only its two student rows are not zero

NORM_FLOOR = 1e-12


@dataclass(frozen=True)
class Trace:
    """Every intermediate value of one mini-batch update; the defaults are those of a batch without pairs."""

    reliability: list[float] = field(default_factory=list)
    pair_weights: dict[Pair, float] = field(default_factory=dict)
    static_probs: list[float] = field(default_factory=list)
    residual_probs: list[float] | None = None
    mixed_probs: list[float] = field(default_factory=list)
    defended_probs: list[float] = field(default_factory=list)
    pair_probs: dict[Pair, float] = field(default_factory=dict)
    budget: int = 0
    num_pilot: int = 0
    num_main: int = 0
    is_enumerated: bool = False
    main_pairs: list[Pair] = field(default_factory=list)
    loss: float = 0.0
    gradient: Matrix = field(default_factory=list)
    exact_loss: float = 0.0
    exact_gradient: Matrix = field(default_factory=list)
    unique_main: int = 0
    unique_pilot: int = 0
    unique_union: int = 0
    loss_variance: float = 0.0
    gradient_variance: float = 0.0


def dot(left: Row, right: Row) -> float:
    """The inner product <left, right>."""
    return sum(a * b for a, b in zip(left, right, strict=True))


def length(vector: Row) -> float:
    """The Euclidean norm."""
    return math.sqrt(dot(vector, vector))


def unit(vector: Row) -> Row:
    """Section 3.1, nu(v) = v / max(|v|, 1e-12)."""
    size = max(length(vector), NORM_FLOOR)
    return [value / size for value in vector]


def cosine(rows: Matrix, pair: Pair) -> float:
    """Section 3.1, c_ij = <nu(h_i), nu(h_j)>."""
    return dot(unit(rows[pair[0]]), unit(rows[pair[1]]))


def all_pairs(size: int) -> list[Pair]:
    """Section 3.1, the unordered relation set {(i, j): i < j}, counted from zero."""
    return [(i, j) for i in range(size) for j in range(i + 1, size)]


def normalise(scores: list[float]) -> list[float]:
    """Scores divided by their sum."""
    total = sum(scores)
    return [score / total for score in scores]


def calibrated_probs(logits: Row, temperature: float) -> list[float]:
    """Section 3.2, softmax(z_T / T_cal); the largest logit is subtracted against overflow."""
    largest = max(logits)
    return normalise([math.exp((logit - largest) / temperature) for logit in logits])


def margin(probs: list[float]) -> float:
    """Section 3.2, m_i: top-one minus top-two probability, whatever the label."""
    first, second = sorted(probs, reverse=True)[:2]
    return first - second


def reliability_score(probs: list[float], label: int, reliability_floor: float) -> float:
    """Section 3.2, r_i = max(r_min, sqrt(p(y_i) m_i))."""
    return max(reliability_floor, math.sqrt(probs[label] * margin(probs)))


def mean_product(reliability: list[float]) -> float:
    """Section 3.2, w_bar = (1/M) sum_{i<j} r_i r_j, as the sum itself rather than its shortcut."""
    pairs = all_pairs(len(reliability))
    return sum(reliability[i] * reliability[j] for i, j in pairs) / len(pairs)


def gated_weights(reliability: list[float], gate_strength: float) -> dict[Pair, float]:
    """Section 3.2, w_ij^(lambda) = (1 - lambda) + lambda r_i r_j / w_bar."""
    mean = mean_product(reliability)
    return {
        (i, j): (1.0 - gate_strength) + gate_strength * reliability[i] * reliability[j] / mean
        for i, j in all_pairs(len(reliability))
    }


def normalised_entropy(probs: list[float]) -> float:
    """Section 3.3, u_i = H(p) / log C, with 0 log 0 = 0."""
    return -sum(prob * math.log(prob) for prob in probs if prob > 0.0) / math.log(len(probs))


def residual_mix_schedule(epoch: int, epochs: int, warmup_epochs: int, max_residual_mix: float) -> float:
    """Section 3.3, tau_t, with epochs counted from 1 and W = min(W0, E - 1)."""
    if not 1 <= epoch <= epochs:
        raise ValueError(f"epoch must be in 1..{epochs}, got {epoch}")
    warmup = min(warmup_epochs, epochs - 1)
    if epoch <= warmup:
        return 0.0
    return max_residual_mix * (epoch - warmup) / (epochs - warmup)


def pilot_residual(student: Matrix, teacher: Matrix, pair: Pair) -> float:
    """Section 3.3, d_P = |c^T - c^S|, a constant."""
    return abs(cosine(teacher, pair) - cosine(student, pair))


def endpoint_residuals(size: int, pilots: list[Pair], residuals: list[float]) -> list[float]:
    """Section 3.3, d_bar_i = D_i / max(N_i, 1): repeated draws count again, absent endpoints are zero."""
    means = []
    for endpoint in range(size):
        seen = [value for pair, value in zip(pilots, residuals, strict=True) if endpoint in pair]
        means.append(sum(seen) / max(len(seen), 1))
    return means


def mix(first: list[float], second: list[float], share: float) -> list[float]:
    """Section 3.3, a^(t) = (1 - tau) a^static + tau a^res, between normalised vectors."""
    return [(1.0 - share) * a + share * b for a, b in zip(first, second, strict=True)]


def defend_endpoints(probs: list[float], endpoint_defense: float) -> list[float]:
    """Section 3.4, a~_i = (1 - eps_e) a_i + eps_e / B."""
    return [(1.0 - endpoint_defense) * prob + endpoint_defense / len(probs) for prob in probs]


def pair_proposal(probs: list[float], pair_defense: float) -> dict[Pair, float]:
    """Section 3.4, q_t = (1 - eps) 2 a_i a_j / Z(a) + eps / M, with Z(a) = 1 - sum_k a_k^2."""
    acceptance = 1.0 - sum(prob * prob for prob in probs)
    pairs = all_pairs(len(probs))
    return {
        (i, j): (1.0 - pair_defense) * 2.0 * probs[i] * probs[j] / acceptance + pair_defense / len(pairs)
        for i, j in pairs
    }


def effective_budget(num_pairs: int, relation_budget: int, relation_cap: int) -> int:
    """Section 3.6, K = min(M, R, C_cap)."""
    if relation_budget < 1 or relation_cap < 1:
        raise ValueError("relation_budget and relation_cap must be at least 1")
    return min(num_pairs, relation_budget, relation_cap)


def pilot_budget(budget: int, pilot_fraction: float) -> int:
    """Section 3.6, K_p = min(max(1, floor(rho K + 1/2)), max(K - 1, 0)), while adaptive."""
    return min(max(1, math.floor(pilot_fraction * budget + 0.5)), max(budget - 1, 0))


def take_draws(draws: list[Pair], count: int, size: int) -> list[Pair]:
    """The first `count` draws the caller fixed, each written as i < j."""
    if len(draws) < count:
        raise ValueError(f"{count} draws are needed, {len(draws)} were given")
    ordered = [(min(pair), max(pair)) for pair in draws[:count]]
    if any(not 0 <= i < j < size for i, j in ordered):
        raise ValueError(f"every draw must be two different endpoints of {size}, got {draws[:count]}")
    return ordered


def pair_integrand(student: Matrix, teacher: Matrix, weight: float, pair: Pair) -> float:
    """Section 3.4, f_ij = w_ij (c^T - c^S)^2."""
    return weight * (cosine(teacher, pair) - cosine(student, pair)) ** 2


def cosine_gradient(moved: Row, other: Row) -> Row:
    """Derivative of <nu(moved), nu(other)> by `moved`.

    Above the floor the Jacobian of nu is (I - nu nu^T) / |v|; below it nu is linear, with Jacobian I / 1e-12.
    """
    size, direction, target = length(moved), unit(moved), unit(other)
    if size < NORM_FLOOR:
        return [value / NORM_FLOOR for value in target]
    similarity = dot(direction, target)
    return [(t - similarity * d) / size for t, d in zip(target, direction, strict=True)]


def pair_gradient(student: Matrix, teacher: Matrix, weight: float, pair: Pair) -> RowGradient:
    """Appendix, g_ij = grad f_ij = 2 w_ij (c^S - c^T) grad c^S, by the two student rows of the pair."""
    i, j = pair
    scale = 2.0 * weight * (cosine(student, pair) - cosine(teacher, pair))
    return {
        i: [scale * value for value in cosine_gradient(student[i], student[j])],
        j: [scale * value for value in cosine_gradient(student[j], student[i])],
    }


def add_up(shape: Matrix, terms: Iterable[tuple[float, RowGradient]]) -> Matrix:
    """sum_k coefficient_k gradient_k, as one row for each student row."""
    total = [[0.0] * len(row) for row in shape]
    for coefficient, gradient in terms:
        for index, row in gradient.items():
            for column, value in enumerate(row):
                total[index][column] += coefficient * value
    return total


def squared_length(rows: Iterable[Row]) -> float:
    """The sum of squares of all entries."""
    return sum(dot(row, row) for row in rows)


def corrections(main_pairs: list[Pair], pair_probs: dict[Pair, float]) -> Iterator[tuple[float, Pair]]:
    """Section 3.4, the factor 1 / (K_m M q_t(I_k, J_k)) of every main draw."""
    for pair in main_pairs:
        yield 1.0 / (len(main_pairs) * len(pair_probs) * pair_probs[pair]), pair


def draw_variance(squares: dict[Pair, float], probs: dict[Pair, float], square: float, draws: int) -> float:
    """Eq. (variance) and the appendix trace: (1/K_m) [(1/M^2) sum_{i<j} squares_ij / q_ij - square]."""
    second_moment = sum(squares[pair] / probs[pair] for pair in probs) / len(probs) ** 2
    return (second_moment - square) / draws


def empty_trace(student: Matrix) -> Trace:
    """Section 3.1, B < 2: the relational term is zero and nothing is spent."""
    return Trace(gradient=add_up(student, []), exact_gradient=add_up(student, []))


def algorithm1(
    student: Matrix,
    teacher: Matrix,
    logits: Matrix,
    labels: list[int],
    *,
    temperature: float,
    pilot_pairs: list[Pair],
    main_pairs: list[Pair],
    gate_strength: float,
    residual_mix: float,
    relation_budget: int,
    relation_cap: int,
    pilot_fraction: float,
    pair_defense: float,
    endpoint_defense: float,
    entropy_power: float,
    reliability_power: float,
    entropy_floor: float,
    residual_floor: float,
    reliability_floor: float,
) -> Trace:
    """Algorithm 1, steps 2 to 6, at fixed draws: the first K_p pilot and K_m main pairs are used."""
    size = len(student)
    if size < 2:
        return empty_trace(student)
    pairs = all_pairs(size)

    # Step 2: reliability, gated weights, static endpoint probabilities.
    probs = [calibrated_probs(row, temperature) for row in logits]
    reliability = [reliability_score(p, y, reliability_floor) for p, y in zip(probs, labels, strict=True)]
    trusted = [max(score, reliability_floor) for score in reliability]
    weights = gated_weights(reliability, gate_strength)
    uncertain = [max(normalised_entropy(p), entropy_floor) for p in probs]
    static_probs = normalise([u**entropy_power * r**reliability_power for u, r in zip(uncertain, trusted, strict=True)])

    # Step 3: the budget, and whether every pair is enumerated. Step 4: pilots, only while adaptive.
    budget = effective_budget(len(pairs), relation_budget, relation_cap)
    is_enumerated = budget == len(pairs)
    is_adaptive = residual_mix > 0.0 and not is_enumerated
    num_pilot = pilot_budget(budget, pilot_fraction) if is_adaptive else 0
    num_main = budget - num_pilot
    pilots = take_draws(pilot_pairs, num_pilot, size)
    residual_probs = None
    if num_pilot > 0:
        observed = endpoint_residuals(size, pilots, [pilot_residual(student, teacher, p) for p in pilots])
        floored = [max(value, residual_floor) for value in observed]
        residual_probs = normalise([r * d for r, d in zip(trusted, floored, strict=True)])

    # Step 5: interpolate, defend the endpoints, then the pairs. Without pilots the static vector stays.
    mixed_probs = static_probs if residual_probs is None else mix(static_probs, residual_probs, residual_mix)
    defended_probs = defend_endpoints(mixed_probs, endpoint_defense)
    if is_enumerated:
        pair_probs = {pair: 1.0 / len(pairs) for pair in pairs}
    else:
        pair_probs = pair_proposal(defended_probs, pair_defense)

    # Step 6: the corrected estimate, beside the exact target and the conditional variances.
    drawn = pairs if is_enumerated else take_draws(main_pairs, num_main, size)
    values = {pair: pair_integrand(student, teacher, weights[pair], pair) for pair in pairs}
    gradients = {pair: pair_gradient(student, teacher, weights[pair], pair) for pair in pairs}
    exact_loss = sum(values.values()) / len(pairs)
    exact_gradient = add_up(student, ((1.0 / len(pairs), gradients[pair]) for pair in pairs))
    loss_variance, gradient_variance = 0.0, 0.0
    if not is_enumerated:
        squares = {pair: values[pair] ** 2 for pair in pairs}
        loss_variance = draw_variance(squares, pair_probs, exact_loss**2, num_main)
        squares = {pair: squared_length(gradients[pair].values()) for pair in pairs}
        gradient_variance = draw_variance(squares, pair_probs, squared_length(exact_gradient), num_main)
    return Trace(
        reliability=reliability,
        pair_weights=weights,
        static_probs=static_probs,
        residual_probs=residual_probs,
        mixed_probs=mixed_probs,
        defended_probs=defended_probs,
        pair_probs=pair_probs,
        budget=budget,
        num_pilot=num_pilot,
        num_main=num_main,
        is_enumerated=is_enumerated,
        main_pairs=list(drawn),
        loss=sum(factor * values[pair] for factor, pair in corrections(drawn, pair_probs)),
        gradient=add_up(student, ((c, gradients[pair]) for c, pair in corrections(drawn, pair_probs))),
        exact_loss=exact_loss,
        exact_gradient=exact_gradient,
        unique_main=len(set(drawn)),
        unique_pilot=len(set(pilots)),
        unique_union=len(set(drawn) | set(pilots)),
        loss_variance=loss_variance,
        gradient_variance=gradient_variance,
    )
