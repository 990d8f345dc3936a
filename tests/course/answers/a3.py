"""a3: other right answers, and wrong ones with what they lose."""

from tests.course.kinds import Right, Wrong

HAND = "the numbers of the example"
ALONE, TOGETHER = "the factor of independent noise", "the factor of correlated noise"
POOL, POOL_TOGETHER = "independent tokens are weighted by their noise", "correlated tokens too"
BIAS, VARIANCE, FACTOR = ("the bias is the mean shift", "the variance is about the mean",
                          "the factor compares with full attention")
WEIGHTS, NEWTON, LOGITS = ("the Hessian by the weights", "the Gauss-Newton part by the logits",
                           "the whole Hessian by the logits")
STEPS = "only steps that keep the constraint count"
FLAT = "infinite if such a step is flat, and only then"
PRINTED, UNEVEN = "the printed matrix gets 50 times worse", "descent on logits gets worse"
RANGE = "the range of eigenvalues holds, and is attained"
KAPPA = "so does the bound on the condition number"
RUN, ARRIVES = "as many steps as descent takes", "None if descent never arrives, and only then"

RIGHT = [
    Right("loops instead of tensors", {
        "a3.1": '''
def by_hand():
    return {"weights": torch.tensor([0.2, 0.2, 0.3, 0.3]), "mean": 0.5, "three to one": 10 / 16,
            "token 0": 0.0144}
''',
        "a3.2": '''
def noise_factor(pool, covariance):
    size = len(pool)
    total = sum(float(pool[i] * pool[j] * covariance[i, j]) for i in range(size)
                for j in range(size))
    return total * size / sum(float(covariance[i, i]) for i in range(size))
''',
        "a3.4": '''
def measure(logits, noise, group):
    def weights(values, m):
        pooled = [sum(values[start : start + m]) / m for start in range(0, len(values), m)]
        powers = [math.exp(x) for x in pooled]
        return [power / sum(powers) / m for power in powers for _ in range(m)]

    full = [weights((logits + row).tolist(), 1) for row in noise]
    coded = [weights((logits + row).tolist(), group) for row in noise]
    clean = weights(logits.tolist(), group)
    out = {"bias": [], "variance": [], "factor": []}
    for token in range(len(logits)):
        var = []
        for samples in (coded, full):
            column = [sample[token] for sample in samples]
            mean = sum(column) / len(column)
            var.append(sum((x - mean) ** 2 for x in column) / (len(column) - 1))
        out["bias"].append(sum(sample[token] for sample in coded) / len(coded) - clean[token])
        out["variance"].append(var[0])
        out["factor"].append(var[0] / var[1])
    return {key: torch.tensor(value) for key, value in out.items()}
''',
        "a3.9": '''
def descent_steps(low, high, step, tolerance):
    for end in (low, high):
        if abs(1 - step * end) >= 1:
            return None
    error, count = [1.0, 1.0], 0
    while max(map(abs, error)) > tolerance:
        error = [error[0] * (1 - step * low), error[1] * (1 - step * high)]
        count += 1
    return torch.tensor(count)
'''}),
    Right("derivatives by torch, other decompositions, numpy", {
        "a3.3": '''
import numpy

def best_pool(covariance):
    size = len(covariance)
    system = numpy.zeros((size + 1, size + 1))
    system[:size, :size] = 2 * covariance.numpy()
    system[size, :size] = system[:size, size] = 1
    return torch.tensor(numpy.linalg.lstsq(system, numpy.eye(size + 1)[size], rcond=None)[0][:size])
''',
        "a3.5": '''
def hessians(logits, values, target):
    def squared(alpha):
        return ((values.T @ alpha - target) ** 2).sum()

    alpha = logits.softmax(0)
    J = torch.autograd.functional.jacobian(lambda z: z.softmax(0), logits)
    whole = torch.autograd.functional.hessian(lambda z: squared(z.softmax(0)), logits)
    A = (J @ values).float()
    return {"weights": torch.autograd.functional.hessian(squared, alpha), "gauss_newton":
                2 * A @ A.T, "logits": whole}
''',
        "a3.6": '''
def condition_on(hessian, normal):
    unit = normal / normal.norm()
    project = torch.eye(len(unit), dtype=unit.dtype) - torch.outer(unit, unit)
    # the direction of normal comes last, far above all others
    found = torch.linalg.eigvalsh(project @ hessian @ project + 1e3 * torch.outer(unit, unit))[:-1]
    return float("inf") if found[0] < 1e-9 * found[-1] else found[-1] / found[0]
''',
        "a3.7": '''
def counterexamples():
    alpha = [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    weights = torch.tensor(alpha, dtype=torch.float64)
    slopes, steps = torch.linalg.eigh(weights.diag() - torch.outer(weights, weights))
    values = steps[:, 1:] / slopes[1:]
    return {"printed": torch.tensor([[-5, 4], [4, 4], [0, 4], [5, 4], [-4, 4], [0, 4]],
                                    dtype=torch.int32),
            "weights": alpha, "values": (7 * values + 3).tolist()}
''',
        "a3.8": '''
def bounds(pool, low, high):
    found = torch.linalg.eigvalsh(pool @ pool.T)
    return {"kappa": found[-1] / found[0] * high / low, "lowest": found[0] * low, "highest":
                found[-1] * high}
'''}),
    Right("noisy within the tolerance", {"a3.3": '''
def best_pool(covariance):
    pool = torch.linalg.inv(covariance).sum(0)
    return pool / pool.sum() * (1 + 1e-6)
''', "a3.5": '''
def hessians(logits, values, target):
    unit = torch.eye(len(logits), dtype=torch.float64)

    def f(z):
        return ((values.T @ z.softmax(0) - target) ** 2).sum()

    h = 3e-4
    whole = torch.stack([torch.stack([(f(logits + h * (a + b)) - f(logits + h
                                                                   * (a
                                                                      - b)) - f(logits - h
                                                                                * (a - b))
                                       + f(logits - h * (a + b))) / (4 * h * h) for b in unit])
                         for a in unit])
    alpha = logits.softmax(0)
    A = alpha[:, None] * (values - alpha @ values)
    return {"weights": 2 * values @ values.T, "gauss_newton": 2 * A @ A.T, "logits": whole}
'''}),
]

WRONG = [
    Wrong("the variance of a mass for that of a token", "a3.1", '"token 0": 0.24**2 / 4',
          '"token 0": 0.24**2', {HAND: 0.5}, "token 0"),
    Wrong("the pool's weights are not squared", "a3.2", "pool @ covariance @ pool",
          "pool @ covariance.diagonal()", {ALONE: 1}, "not squared"),
    Wrong("the group size instead of the squares", "a3.2",
          "(pool @ covariance @ pool / covariance.diagonal().mean()).item()", "1 / len(pool)",
          {ALONE: 1, TOGETHER: 1}, "even"),
    Wrong("covariances are left out", "a3.2", "pool @ covariance @ pool",
          "pool.square() @ covariance.diagonal()", {TOGETHER: 1}, "left out"),
    Wrong("the sign of a covariance is lost", "a3.2", "pool @ covariance @ pool",
          "pool @ covariance.abs() @ pool", {TOGETHER: 1}, "sign"),
    Wrong("each pair once", "a3.2", "pool @ covariance @ pool", "pool @ covariance.tril() @ pool",
          {TOGETHER: 1}, "once"),
    Wrong("the mean variance is not divided out", "a3.2", " / covariance.diagonal().mean()", "",
          {ALONE: 1}, "not divided out"),
    Wrong("the pooling is the mean", "a3.3",
          "torch.linalg.solve(covariance, torch.ones_like(covariance[0]))",
          "torch.ones_like(covariance[0])", {POOL: 1, POOL_TOGETHER: 1}, "same weight"),
    Wrong("the best pooling of independent tokens", "a3.3", "torch.linalg.solve(covariance, "
                                                            "torch.ones_like(covariance[0]))",
          "1 / covariance.diagonal()", {POOL_TOGETHER: 1}, "covariances are left out"),
    Wrong("no negative weights", "a3.3", "torch.ones_like(covariance[0]))",
          "torch.ones_like(covariance[0])).clamp(0)", {POOL_TOGETHER: 1}, "cut off"),
    Wrong("the eigenvector of the smallest eigenvalue", "a3.3",
          "torch.linalg.solve(covariance, "
          "torch.ones_like(covariance[0]))", "torch.linalg.eigh(covariance)[1][:, 0]",
          {POOL: 1}, "not for the sum 1"),
    Wrong("mean square instead of variance", "a3.4", '"variance": coded.var(0)',
          '"variance": (coded - grouped(logits)).square().mean(0)', {VARIANCE: 1}, "bias included"),
    Wrong("divided by N", "a3.4", '"variance": coded.var(0)',
          '"variance": coded.var(0, correction=0)', {VARIANCE: 1}, "divided by N"),
    Wrong("bias against full attention", "a3.4", "- grouped(logits)", "- logits.softmax(-1)",
          {BIAS: 1}, "compared with full attention"),
    Wrong("bias against full attention under the same noise", "a3.4",
          '"bias": coded.mean(0) - grouped(logits)',
          '"bias": (coded - full).mean(0)', {BIAS: 1}, "under the same noise"),
    Wrong("the logits are left out", "a3.4", "full, coded =",
          "logits = 0 * logits\n    full, coded =",
          {BIAS: 1, VARIANCE: 1, FACTOR: 1}, "the noise alone"),
    Wrong("logits of a group are summed", "a3.4", "(-1, group)).mean(-1)", "(-1, group)).sum(-1)",
          {BIAS: 1, VARIANCE: 1, FACTOR: 1}, "summed instead of averaged"),
    Wrong("the mass of a group is kept", "a3.4", "(-1, group)).mean(-1)",
          "(-1, group)).logsumexp(-1)",
          {BIAS: 1, VARIANCE: 1, FACTOR: 1}, "mass of a group is kept"),
    Wrong("standard deviations", "a3.4", "coded.var(0) / full.var(0)", "coded.std(0) / full.std(0)",
          {FACTOR: 1}, "standard deviations"),
    Wrong("masses instead of weights", "a3.4", ".repeat_interleave(group, dim=-1) / group",
          ".repeat_interleave(group, dim=-1)", {BIAS: 1, VARIANCE: 1, FACTOR: 1},
          "shared by its tokens"),
    Wrong("noise on weights, not on logits", "a3.4", "grouped(logits + noise)\n",
          "grouped(logits) + noise\n", {BIAS: 1, VARIANCE: 1, FACTOR: 1}),
    Wrong("the printed Hessian", "a3.5", '{"weights": weights', '{"weights": 2 * values.T @ values',
          {WEIGHTS: 1}, "printed 2 V^T V"),
    Wrong("no factor 2", "a3.5", "weights = 2 * values", "weights = values",
          {WEIGHTS: 1, NEWTON: 1, LOGITS: 2}, "factor 2"),
    Wrong("no rank-one term", "a3.5", "alpha.diag() - torch.outer(alpha, alpha)", "alpha.diag()",
          {NEWTON: 1, LOGITS: 2}, "rank-one"),
    Wrong("one Jacobian instead of two", "a3.5", "jacobian @ weights @ jacobian",
          "jacobian @ weights", {NEWTON: 1, LOGITS: 2}, "on the left only"),
    Wrong("Gauss-Newton is taken for the whole", "a3.5", '"logits": gauss_newton + rest',
          '"logits": gauss_newton', {LOGITS: 2}, "left out (Gauss-Newton)"),
    Wrong("wrong sign of the residual", "a3.5", "values.T @ alpha - target",
          "target - values.T @ alpha", {LOGITS: 2}, "wrong sign"),
    Wrong("the zero eigenvalue counts", "a3.6", "steps.T @ hessian @ steps",
          "steps @ (steps.T @ hessian @ steps) @ steps.T", {STEPS: 1, FLAT: 1},
          "the direction it forbids"),
    Wrong("the constraint is ignored", "a3.6", "steps.T @ hessian @ steps", "hessian",
          {STEPS: 1, FLAT: 1}),
    Wrong("differences of neighbours as a basis", "a3.6",
          'torch.linalg.qr(normal[:, None], mode="complete")[0][:, 1:]',
          "torch.cat([torch.diag(1 / normal[:-1]), 0 * normal[None, 1:]]) - torch.cat([0 * "
          "normal[None, 1:], torch.diag(1 / normal[1:])])", {STEPS: 1, FLAT: 1}, "not orthonormal"),
    Wrong("the sum of steps instead of normal", "a3.6", "qr(normal[:, None]",
          "qr(torch.ones_like(normal)[:, None]", {STEPS: 1, FLAT: 1}, "sum to 0"),
    Wrong("every zero eigenvalue is dropped", "a3.6",
          'return (found[-1] / found[0]).item() if found[0] > 1e-9 * found[-1] else float("inf")',
          "return (found[-1] / found[found > 1e-9 * "
          "found[-1]][0]).item()", {FLAT: 1}, "eigenvalue 0"),
    Wrong("no test for infinity", "a3.6", ' if found[0] > 1e-9 * found[-1] else float("inf")', "",
          {FLAT: 1}, "eigenvalue 0"),
    Wrong("infinite only if rounding leaves an exact 0", "a3.6", "if found[0] > 1e-9 * found[-1]",
          "if found[0] != 0", {FLAT: 1}, "tiny number"),
    Wrong("the normal is not divided by its length", "a3.6", "", '''
def condition_on(hessian, normal):
    project = torch.eye(len(normal), dtype=normal.dtype) - torch.outer(normal, normal)
    found = torch.linalg.eigvalsh(project @ hessian @ project)[1:]
    return (found[-1] / found[0]).item() if found[0] > 1e-9 * found[-1] else float("inf")
''', {STEPS: 1}, "not divided by its length"),
    Wrong("not printed bad enough", "a3.7", "[[4, 5], [4, -4], [4, 0], [4, -5], [4, 4], [4, 0]]",
          "[[1, 1], [1, 1], [1, -1], [1, -1], [1, -1], [1, 1]]", {PRINTED: 1}, "9, wanted 50"),
    Wrong("a hypothesis is broken", "a3.7", "[[4, 5], [4, -4], [4, 0], [4, -5], [4, 4], [4, 0]]",
          "[[4, 5], [4, -5], [4, 0], [4, -5], [4, 5], [4, 0]]", {PRINTED: 1},
          "positive eigenvalues"),
    Wrong("an entry is too large", "a3.7", "[[4, 5],", "[[4, 10],", {PRINTED: 1},
          "entry [0][1] is 10"),
    Wrong("even weights in groups", "a3.7", "[0.9, 0.02, 0.02, 0.02, 0.02, 0.02]",
          "[0.4, 0.4, 0.05, 0.05, 0.05, 0.05]", {UNEVEN: 2}, "never rise"),
    Wrong("fewer dimensions than needed", "a3.7",
          '"values": torch.linalg.pinv(jacobian, rtol=1e-9)',
          '"values": torch.linalg.pinv(jacobian, rtol=1e-9)[:, :4]', {UNEVEN: 2},
          "affinely independent"),
    Wrong("the identity is tried", "a3.7", '"values": torch.linalg.pinv(jacobian, rtol=1e-9)',
          '"values": torch.eye(6)', {UNEVEN: 2}, "at least twice"),
    Wrong("even pooling is assumed", "a3.8", "pool.square().sum(1)", "1 / (pool > 0).sum(1)",
          {RANGE: 1, KAPPA: 1}, "taken to be even"),
    Wrong("the equal-size theorem", "a3.8", "high * most / (low * least)", "high / low", {KAPPA: 1},
          "Some H breaks"),
    Wrong("a bound that is too loose", "a3.8", "high * most / (low * least)",
          "2 * high * most / (low * least)", {KAPPA: 1}, "No H attains"),
    Wrong("rows are not squared", "a3.8", "pool.square().sum(1)", "pool.square().sum(1).sqrt()",
          {RANGE: 1, KAPPA: 1}, "not squared"),
    Wrong("eigenvalues of the larger product", "a3.8", "", '''
def bounds(pool, low, high):
    found = torch.linalg.eigvalsh(pool.T @ pool)
    return {"lowest": low * found[0], "highest": high * found[-1], "kappa":
                high * found[-1] / (low * found[0])}
''', {RANGE: 1, KAPPA: 1}, "eigenvalue 0 of W^T W"),
    Wrong("only the slow end", "a3.9", "max(abs(1 - step * low), abs(1 - step * high))",
          "abs(1 - step * low)", {RUN: 1, ARRIVES: 1}, "only the smallest"),
    Wrong("the best step's formula", "a3.9", "max(abs(1 - step * low), abs(1 - step * high))",
          "(high - low) / (high + low)", {RUN: 1, ARRIVES: 1}, "best step"),
    Wrong("the squared error", "a3.9", "math.log(tolerance) / math.log(rate)",
          "math.log(tolerance) / math.log(rate) / 2", {RUN: 1, ARRIVES: 1}, "squared error"),
    Wrong("descents that never arrive are not noticed", "a3.9", "if rate >= 1:", "if rate < 0:",
          {ARRIVES: 1}),
    Wrong("only a growing error never arrives", "a3.9", "if rate >= 1:", "if rate > 1:",
          {ARRIVES: 1}),
    Wrong("the factor 0 is forgotten", "a3.9", "1 if rate <= tolerance else ", "", {ARRIVES: 1}),
    Wrong("rounded down, and 1 added", "a3.9", "1 if rate <= tolerance else math.ceil(",
          "1 + math.floor(", {RUN: 1, ARRIVES: 1}, "come out whole"),
]
