#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes src/base/math/coefficients.h: the polynomials, tables and constants of src/codegen/math.c.

    python3 tests/codegen/fit.py > src/base/math/coefficients.h      (needs mpmath)

Polynomials of double coefficients interpolate the function at the Chebyshev points of the interval, in 80 digits, which is within a small factor of
the minimax; those of float coefficients are weighted least squares on such points, rounded one coefficient at a time. Errors go to stderr,
relative to the result that the polynomial is a part of.
Types: f32, f64, and mid: f64 arithmetic whose result is rounded to f32."""
import math
import struct
import sys
from mpmath import mp, mpf, exp, log, sin, cos, asin, atan, atanh, sinh, tanh, erf, erfc, sqrt, pi, floor, matrix, lu_solve

mp.dps = 80


def round_to(kind, x):
    return struct.unpack('f', struct.pack('f', float(x)))[0] if kind == 'f32' else float(x)


def interpolate(function, low, high, degree, shift):
    n = degree + 1
    points = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    rows, right = matrix(n, n), matrix(n, 1)
    for i, p in enumerate(points):
        right[i] = function(p)
        for k in range(n):
            rows[i, k] = (p - shift)**k
    exact = lu_solve(rows, right)
    return [float(exact[k]) for k in range(n)]


def nearest(columns, target):
    """The factors of the columns by which their sum is nearest to the target: the normal equations."""
    normal = matrix([[sum(a * b for a, b in zip(x, y)) for y in columns] for x in columns])
    return list(lu_solve(normal, matrix([sum(a * b for a, b in zip(x, target)) for x in columns])))


def least_squares(function, low, high, degree, scale):
    """Rounds one coefficient after the other, from the constant term on, and fits the later ones to what the earlier ones leave."""
    points = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / 240) for i in range(120)]
    weights = [abs(scale(p)) for p in points]
    left = [function(p) for p in points]
    coefficients = []
    for k in range(degree + 1):
        powers = range(k, degree + 1)
        columns = [[w * p**power for p, w in zip(points, weights)] for power in powers]
        target = [w * v for v, w in zip(left, weights)]
        best = nearest(columns, target)
        coefficients.append(round_to('f32', best[0]))
        left = [v - coefficients[k] * p**k for p, v in zip(points, left)]
    return coefficients


def fit(name, kind, function, low, high, degree, scale, shift=0):
    """scale(t): what an error of the polynomial at t is multiplied by, relative to the result. The polynomial is in t - shift."""
    low, high, shift = mpf(low), mpf(high), mpf(shift)
    if kind == 'f32':
        coefficients = least_squares(function, low, high, degree, scale)
    else:
        coefficients = interpolate(function, low, high, degree, shift)
    worst = 0
    for i in range(1, 400):
        t = low + (high - low) * i / 400
        value = value_of(coefficients, t - shift)
        worst = max(worst, abs((value - function(t)) * scale(t)))
    print(f'{name}_{kind}: degree {degree}, error 2^{float(log(worst) / log(2)):.1f}', file=sys.stderr)
    print(f'static const double {name}_{kind}[] = {{' + ', '.join(c.hex() for c in coefficients) + '};')


def value_of(coefficients, t):
    return sum(mpf(c) * t**k for k, c in enumerate(coefficients))


def fit_quotient(name, function, high, over, under, scale):
    """P/Q of those degrees with Q(0) = 1, nearly minimax on [0, high]: least squares of P - f Q, divided by the Q found before (Sanathanan and Koerner,
    1963), with weights that grow where the errors are large (Lawson, 1961). One coefficient of Q after the other is rounded to float, and the
    others fitted again; then P is fitted to what Q is."""
    points = [high / 2 + high / 2 * cos(pi * (2 * i + 1) / 240) for i in range(120)]
    values, scales, emphasis = [function(p) for p in points], [abs(scale(p)) for p in points], [mpf(1)] * 120
    bottom = [mpf(1)] + [mpf(0)] * under
    for rounded in range(1, under + 1):
        for turn in range(40 if rounded == 1 else 10):
            weights = [s * e / value_of(bottom, p) for s, e, p in zip(scales, emphasis, points)]
            columns = [[w * p**k for w, p in zip(weights, points)] for k in range(over + 1)]
            columns += [[-w * v * p**k for w, v, p in zip(weights, values, points)] for k in range(rounded, under + 1)]
            target = [w * v * value_of(bottom[:rounded], p) for w, v, p in zip(weights, values, points)]
            best = nearest(columns, target)
            top, bottom = best[:over + 1], bottom[:rounded] + best[over + 1:]
            if turn < 3:
                continue
            errors = [abs(value_of(top, p) / value_of(bottom, p) - v) * s for p, v, s in zip(points, values, scales)]
            emphasis = [e * sqrt(error / max(errors) + mpf('0.02')) for e, error in zip(emphasis, errors)]
            emphasis = [max(e / max(emphasis), mpf('0.001')) for e in emphasis]
        bottom[rounded] = mpf(round_to('f32', bottom[rounded]))
    top = least_squares(lambda z: function(z) * value_of(bottom, z), mpf(0), high, over, lambda z: scale(z) / value_of(bottom, z))
    points = [high * (mpf(i) / 400)**2 for i in range(1, 400)]
    worst = max(abs(value_of(top, z) / value_of(bottom, z) - function(z)) * scale(z) for z in points)
    print(f'{name}_f32: degrees {over} and {under}, error 2^{float(log(worst) / log(2)):.1f}', file=sys.stderr)
    for part, coefficients in ('over', top), ('under', bottom):
        print(f'static const double {name}_{part}_f32[] = {{' + ', '.join(float(c).hex() for c in coefficients) + '};')


def by_series(closed, series, border):
    """closed loses digits near 0: there its Taylor series."""
    return lambda t: closed(t) if abs(t) > border else series(t)


half_ln2 = log(2) / 2 * mpf('1.0001')
exp_tail = by_series(lambda r: (exp(r) - 1 - r) / r**2, lambda r: mpf(1) / 2 + r / 6, mpf(10)**-30)
exp2_tail = by_series(lambda r: (2**r - 1) / r, lambda r: log(2) + r * log(2)**2 / 2, mpf(10)**-30)
log_tail = by_series(lambda f: (log(1 + f) - f + f**2 / 2) / f**3, lambda f: mpf(1) / 3 - f / 4, mpf(10)**-20)
atanh_tail = by_series(lambda z: (2 * atanh(sqrt(z)) - 2 * sqrt(z)) / sqrt(z)**3, lambda z: mpf(2) / 3 + 2 * z / 5, mpf(10)**-30)
atanh_second = by_series(lambda z: (atanh_tail(z) - mpf(2) / 3) / z, lambda z: mpf(2) / 5 + 2 * z / 7, mpf(10)**-20)
sin_tail = by_series(lambda z: (sin(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 6 + z / 120, mpf(10)**-30)
cos_tail = by_series(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, lambda z: mpf(1) / 24 - z / 720, mpf(10)**-25)
asin_tail = by_series(lambda z: (asin(sqrt(z)) / sqrt(z) - 1) / z, lambda z: mpf(1) / 6 + 3 * z / 40, mpf(10)**-30)
atan_tail = by_series(lambda z: (atan(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + z / 5, mpf(10)**-30)
sinh_tail = by_series(lambda z: (sinh(sqrt(z)) / sqrt(z) - 1) / z, lambda z: mpf(1) / 6 + z / 120, mpf(10)**-30)
tanh_tail = by_series(lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, lambda z: -mpf(1) / 3 + 2 * z / 15, mpf(10)**-30)
erf_near = by_series(lambda z: erf(sqrt(z)) / sqrt(z) - 1, lambda z: 2 / sqrt(pi) * (1 - z / 3) - 1, mpf(10)**-30)
erf_exponent = by_series(lambda x: -log(erfc(x)) / x - 1, lambda x: 2 / sqrt(pi) + 2 * x / pi - 1, mpf(10)**-30)

print('/* SPDX-License-Identifier: Apache-2.0 */')
print('/* Generated by tests/codegen/fit.py, which says how. Coefficients from the constant term on. */')
print('#ifndef ONNXFUSE_BASE_MATH_COEFFICIENTS_H\n#define ONNXFUSE_BASE_MATH_COEFFICIENTS_H\n')
print('/* (exp(r) - 1 - r) / r^2, |r| <= log(2)/2 */')
for kind, degree in ('f32', 4), ('mid', 6), ('f64', 10):
    fit('exp_tail', kind, exp_tail, -half_ln2, half_ln2, degree, lambda r: r**2 / exp(r))
print('/* (2^r - 1) / r, |r| <= 1/2 */')
fit('exp2_tail', 'f32', exp2_tail, mpf('-0.50005'), mpf('0.50005'), 4, lambda r: r / 2**r)
print('/* (log(1+f) - f + f^2/2) / f^3, 1+f in [sqrt(1/2), sqrt(2)] */')
fit('log_tail', 'f32', log_tail, sqrt(mpf(1) / 2) - 1, sqrt(mpf(2)) - 1, 8, lambda f: f**3 / log(1 + f) if f else 0)
print('/* (2 atanh(s) - 2 s) / s^3 in z = s^2, s = f/(2+f) */')
z_most = ((sqrt(mpf(2)) - 1) / (sqrt(mpf(2)) + 1))**2 * mpf('1.001')
for kind, degree in ('mid', 4), ('f64', 7):
    fit('atanh_tail', kind, atanh_tail, 0, z_most, degree, lambda z: z / 2)
print('/* ((2 atanh(s) - 2 s) / s^3 - 2/3) / s^2 */')
fit('atanh_second', 'f64', atanh_second, 0, z_most, 8, lambda z: z**2 / 2)
print('/* sin(r)/r = 1 + z S(z), cos(r) = 1 - z/2 + z^2 C(z), z = r^2, |r| <= pi/4 */')
quarter = (pi / 4 * mpf('1.001'))**2
for kind, degree in ('f32', 2), ('mid', 4), ('f64', 6):
    fit('sin_tail', kind, sin_tail, 0, quarter, degree, lambda z: z)
    fit('cos_tail', kind, cos_tail, 0, quarter, degree, lambda z: z**2 * sqrt(mpf(2)))
print('/* asin(x)/x = 1 + z A(z), z = x^2 <= 1/4 */')
for kind, degree in ('mid', 7), ('f64', 12):
    fit('asin_tail', kind, asin_tail, 0, mpf('0.2501'), degree, lambda z: z)
print('/* atan(x)/x = 1 + z T(z), z = x^2 <= 1 */')
for kind, degree in ('f32', 9), ('f64', 21):
    fit('atan_tail', kind, atan_tail, 0, 1, degree, lambda z: z * 4 / pi)
print('/* sinh(x)/x = 1 + z H(z), z = x^2 <= 1 */')
for kind, degree in ('f32', 3), ('f64', 7):
    fit('sinh_tail', kind, sinh_tail, 0, 1, degree, lambda z: z)
print('/* tanh(x)/x = 1 + z T(z), z = x^2, tanh(x) <= 1/4 */')
for kind, degree in ('f32', 3), ('f64', 8):
    fit('tanh_tail', kind, tanh_tail, 0, mpf('0.0655'), degree, lambda z: z)
print('/* erf(x)/x - 1 in z = x^2 <= 1 */')
fit('erf_near', 'f64', erf_near, 0, 1, 13, lambda z: mpf(1))
print('/* -log(1 - erf(x)) / x - 1 in x - ERF_CENTRE */')


def erf_scale(x):
    y = x * (1 + erf_exponent(x))
    return x * exp(-y) / (1 - exp(-y)) if y else mpf(1)


fit('erf_exponent', 'f64', erf_exponent, 1, 6, 26, erf_scale, mpf('3.5'))


ERF_MOST = mpf('3.9225')
print('/* erf(x)/x - 1/4 as a quotient of polynomials in z = x^2, |x| <= ERF_MOST */')
fit_quotient('erf', lambda z: erf_near(z) + mpf(3) / 4, ERF_MOST**2, 5, 6, lambda z: 1 / (1 + erf_near(z)))


def constant(name, value):
    """A double for each part: NAME_1 + NAME_2 + ..."""
    print(f'#define {name} {float(value).hex()}')


def split(name, value, bits):
    """The first part has so many bits, the second what is left."""
    scale = mpf(2)**(bits - 1 - int(floor(log(abs(value)) / log(2))))
    first = floor(value * scale + mpf(1) / 2) / scale
    constant(name + '_1', first)
    constant(name + '_2', round_to('f64', value - first))


print()
constant('ERF_CENTRE', mpf('3.5'))
constant('ERF_MOST', ERF_MOST)
constant('TANH_NEAR', mpf('0.2554'))
constant('LOG2_E', 1 / log(2))
print('/* The first part times any exponent is exact. */')
split('LN2_F32', log(2), 15)
split('LN2_F64', log(2), 42)
print('/* In doubles; the f32 parts are rounded to f32 where they are used. */')
for name, value in ('HALF_PI', pi / 2), ('TWO_THIRDS', mpf(2) / 3):
    first = mpf(float(value))
    constant(name + '_1', first)
    constant(name + '_2', value - first)

print("""
/* 2/pi for the reduction of x in [2^begin, 2^end) modulo pi/2 (Payne and Hanek, "Radian reduction for trigonometric functions", 1983): the bits whose
 * product with every such x (of 24 or 53 bits) is a multiple of 4 are left out; the rest in parts of a double each, most significant first. From 2^504 on times 2^512, for arguments times 2^-512. */""")


def pieces(kind, precision, parts, borders, top):
    name = f'two_over_pi_{kind}'
    print(f'enum {{ SEGMENTS_{kind.upper()} = {len(borders)}, PARTS_{kind.upper()} = {parts} }};')
    print(f'static const double {name}_begin[] = {{' + ', '.join(float(mpf(2)**b if b else 0).hex() for b in borders) + '};')
    print(f'static const double {name}[][{parts}] = {{')
    mp.prec = 2400
    whole = 2 / pi
    for begin in borders:
        rest = whole
        if begin:
            unit = mpf(2)**(2 - (begin - precision + 1))
            rest = whole - floor(whole / unit) * unit
        if begin > 500:
            rest *= mpf(2)**512
        row = []
        for _ in range(parts):
            part = mpf(float(rest))
            if kind == 'f32' and part > rest:  # so that the next part is positive
                part = mpf(math.nextafter(float(rest), 0))
            row.append(float(part))
            rest -= part
        print('    {' + ', '.join(p.hex() for p in row) + '},')
    print('};')


pieces('f32', 24, 2, [0, 48, 72, 96, 120], 128)
pieces('f64', 53, 4, list(range(0, 1024, 42)), 1024)
print('\n#endif')
