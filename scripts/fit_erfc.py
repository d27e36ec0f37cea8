#!/usr/bin/env python3
"""The coefficients of backends/openmp/simd/erf_kernel.h (Q, R) and backends/cuda/elementwise/unary.cu (L), as
polynomials in x - centre with the least largest error (Remez' exchange algorithm). Needs mpmath.
  Q(x) = erfc(x) exp(x^2) from 1 on; its error counts times exp(-x^2), as it does in erf(x) = 1 - exp(-x^2) Q(x);
  R(x) = (1 - Phi(x)) exp(x^2 / 2) from 0 on, whose error counts times exp(-x^2 / 2);
  L(x) = log2(1 - Phi(x)) from 0 on, whose error counts times (1 - Phi(x)) ln 2. Beyond its end it falls to -infinity.

    scripts/fit_erfc.py
"""
from mpmath import erfc, exp, linspace, lu_solve, matrix, mp, mpf, nstr, polyval

mp.dps = 50


def fit(target, weight, degree, start, end, centre):
    """Coefficients, lowest power first, and the largest weighted error."""
    count = degree + 2
    # Extremes of a Chebyshev polynomial, drawn towards the start where the weight is.
    points = [start + (end - start) * ((1 - mp.cos(mp.pi * i / (count - 1))) / 2) ** mpf(1.5) for i in range(count)]
    grid = [start + (end - start) * (t ** 2) for t in linspace(0, 1, 60 * count)]
    for _ in range(30):
        system, right = matrix(count, count), matrix(count, 1)
        for row, x in enumerate(points):
            for k in range(degree + 1):
                system[row, k] = (x - centre) ** k
            system[row, degree + 1] = (-1) ** row / weight(x)
            right[row] = target(x)
        solution = lu_solve(system, right)
        coefficients = [solution[k] for k in range(degree + 1)]
        error = lambda x: (polyval(coefficients[::-1], x - centre) - target(x)) * weight(x)
        values = [error(x) for x in grid]
        # The largest error of each sign in turn.
        runs = [[0]]
        for i in range(1, len(grid)):
            if values[i] * values[runs[-1][-1]] > 0:
                runs[-1].append(i)
            else:
                runs.append([i])
        peaks = [max(run, key=lambda i: abs(values[i])) for run in runs]
        while len(peaks) > count:
            del peaks[0 if abs(values[peaks[0]]) < abs(values[peaks[-1]]) else -1]
        if len(peaks) < count:
            break
        fresh = [grid[i] for i in peaks]
        done = max(abs(a - b) for a, b in zip(points, fresh)) < mpf("1e-12")
        points = fresh
        if done:
            break
    return coefficients, max(abs(v) for v in values)


Q = lambda x: erfc(x) * exp(x * x), lambda x: exp(-x * x)
R = lambda x: erfc(x / mp.sqrt(2)) / 2 * exp(x * x / 2), lambda x: exp(-x * x / 2)
beyond = lambda x: erfc(x / mp.sqrt(2)) / 2
L = lambda x: mp.log(beyond(x), 2), lambda x: beyond(x) * mp.log(2)
for name, functions, degree, start, end, centre, digits in (
    ("Q, float", Q, 7, 1, 4, mpf("1.5"), 12),
    ("R, float", R, 11, 0, mpf("5.3"), mpf("1.25"), 12),
    ("L, float", L, 8, 0, mpf("5.5"), mpf(0), 10),
):
    coefficients, error = fit(*functions, degree, start, end, centre)
    print(f"{name}: x in [{start}, {nstr(mpf(end), 3)}], powers of x - {nstr(mpf(centre), 3)},",
          f"error 2^{nstr(mp.log(error, 2), 4)}")
    for c in coefficients:
        print("   ", nstr(c, digits))
