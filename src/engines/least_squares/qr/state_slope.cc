#include "src/engines/least_squares/qr/state_slope.h"

#include <algorithm>
#include <utility>

namespace ttr::least_squares {
namespace {

double InverseOf(double d) { return d > 0 ? 1 / d : 0; }

/// rows <- L^-1 rows, `count` numbers each.
void Substitute(const Triangle& t, std::int64_t count, std::int64_t stride, double* rows) {
  for (std::int64_t i = 0; i < t.key_dim; ++i) {
    const double* const l = t.Row(i) + t.value_dim;
    for (std::int64_t j = 0; j < i; ++j) {
      for (std::int64_t c = 0; c < count; ++c) rows[i * stride + c] -= l[j] * rows[j * stride + c];
    }
  }
}

}  // namespace

double StateSlope::ToSums(const double* rss) const {
  const std::int64_t n = triangle.key_dim, values = triangle.value_dim;
  double product = 0;
  for (std::int64_t v = 0; v < values; ++v) product += c[v] * rss[v];
  for (std::int64_t i = 0; i < n; ++i) product += by_r[i * n + i] * triangle.d[i];
  for (std::int64_t i = 0; i < n; ++i) {
    const double* const w = triangle.Row(i);
    const double d = triangle.d[i], inverse = InverseOf(d);
    for (std::int64_t v = 0; v < values; ++v) {
      const double of_w = by_w[i * values + v] - 2 * c[v] * d * w[v];
      by_r[i * n + i] -= of_w * w[v] * inverse + c[v] * w[v] * w[v];
      g[i * stride + v] = of_w * inverse;
    }
  }
  Substitute(triangle, values, stride, g);
  for (std::int64_t j = 0; j < n; ++j) {  // Ubar_ij as by_r_ji
    for (std::int64_t i = 0; i < j; ++i) {
      for (std::int64_t v = 0; v < values; ++v) {
        by_r[j * n + i] -= g[i * stride + v] * triangle.d[j] * triangle.Row(j)[v];
      }
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {  // P = triu(L Ubar D^-1, 1) + Dbar
    const double* const l = triangle.Row(i) + values;
    std::fill(room + i * n, room + i * n + i, 0.0);
    room[i * n + i] = by_r[i * n + i];
    for (std::int64_t j = i + 1; j < n; ++j) {
      double sum = by_r[j * n + i];  // L_ii = 1
      for (std::int64_t k = 0; k < i; ++k) sum += l[k] * by_r[j * n + k];
      room[i * n + j] = sum * InverseOf(triangle.d[j]);
    }
  }
  Substitute(triangle, n, n, room);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < i; ++j) std::swap(room[i * n + j], room[j * n + i]);
  }
  Substitute(triangle, n, n, room);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) f[i * stride + j] = room[i * n + j] + room[j * n + i];
  }
  return product;
}

void StateSlope::FromSums() const {
  const std::int64_t n = triangle.key_dim, values = triangle.value_dim;
  for (std::int64_t i = 0; i < n; ++i) {
    const double* const w = triangle.Row(i);
    const double* const l = w + values;
    const double d = triangle.d[i];
    std::fill(by_r + i * n, by_r + (i + 1) * n, 0.0);
    double* const along = room;  // L_i (Abar + Abar^T)
    for (std::int64_t j = 0; j < n; ++j) {
      along[j] = f[i * stride + j];
      for (std::int64_t k = 0; k < i; ++k) along[j] += l[k] * f[k * stride + j];
    }
    for (std::int64_t j = 0; j < i; ++j) by_r[i * n + j] = d * along[j];
    double of_d = along[i];
    for (std::int64_t k = 0; k < i; ++k) of_d += l[k] * along[k];
    of_d /= 2;
    for (std::int64_t v = 0; v < values; ++v) {
      double of_b = g[i * stride + v];  // L_i Bbar
      for (std::int64_t k = 0; k < i; ++k) of_b += l[k] * g[k * stride + v];
      for (std::int64_t j = 0; j < i; ++j) by_r[i * n + j] += d * w[v] * g[j * stride + v];
      of_d += of_b * w[v] + c[v] * w[v] * w[v];
      by_w[i * values + v] = d * (of_b + 2 * c[v] * w[v]);
    }
    by_r[i * n + i] = of_d;
  }
}

}  // namespace ttr::least_squares
