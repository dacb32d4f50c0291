/// Random numbers that are the same on every machine, for every number of threads.
///
///   draw(seed, stream, i) = half (i mod 2) of Philox4x32-10(key = seed, counter = (i div 2,
///   stream))
///
/// A draw is a pure function of (seed, stream, i), not of the draws before it, so work may be cut
/// among threads in any way: give each task a stream of its own, or let it jump with Seek.
///
/// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
/// Normals: inverse distribution function by the rational approximation PPND16 of Wichura,
/// Algorithm AS 241 (1988), on a logarithm of our own. Only + - * / and sqrt are used, which IEEE
/// 754 rounds the same way everywhere; no function of the C library takes part.
///
/// | number        | draws used          | values                                               |
/// |---------------|---------------------|------------------------------------------------------|
/// | Bits          | 1                   | 0 .. 2^64 - 1                                        |
/// | Uniform       | 1                   | the 2^52 odd multiples of 2^-53: inside (0, 1)       |
/// | Normal        | 1                   | |x| < 8.21, relative error < 1e-15                   |
/// | Exponential   | 1                   | 1.1e-16 < x < 36.8                                   |
/// | Below(n)      | 1, rarely more      | 0 .. n - 1, unbiased                                 |
/// | Shuffle       | length - 1, or more | every order equally probable                         |
/// | Choose(n, m)  | m, or more          | every ordered m-subset of 0 .. n - 1, unbiased       |
///
/// Cost: ten rounds of two multiplications for every two draws; some 30 flops more for a normal.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ttr {

/// Natural logarithm of a positive finite number, error below 2 ulp, the same bits everywhere.
/// Throws Error for any other number.
double PortableLog(double x);

/// The x with P(N(0, 1) <= x) = p, relative error below 1e-15, the same bits everywhere. Throws
/// Error unless 0 < p < 1.
double NormalQuantile(double p);

class CounterRandom {
 public:
  explicit CounterRandom(std::uint64_t seed, std::uint64_t stream = 0)
      : seed_(seed), stream_(stream) {}

  /// Draw number `index`; the position stays where it is.
  std::uint64_t BitsAt(std::uint64_t index) const;
  double UniformAt(std::uint64_t index) const;
  double NormalAt(std::uint64_t index) const;

  /// The next draw.
  std::uint64_t Bits();
  double Uniform();
  double Normal();
  /// -log(Uniform()): mean 1.
  double Exponential();
  /// A whole number in 0 .. n - 1. Throws Error if n < 1.
  std::int64_t Below(std::int64_t n);

  template <typename T>
  void Shuffle(std::span<T> items) {
    for (std::size_t left = items.size(); left > 1; --left) {
      const auto other = static_cast<std::size_t>(Below(static_cast<std::int64_t>(left)));
      using std::swap;
      swap(items[left - 1], items[other]);
    }
  }
  /// 0 .. n - 1 in random order.
  std::vector<std::int64_t> Permutation(std::int64_t n);
  /// `count` different numbers of 0 .. n - 1, in random order, in memory proportional to `count`.
  /// Throws Error unless 0 <= count <= n.
  std::vector<std::int64_t> Choose(std::int64_t n, std::int64_t count);

  /// The index of the next draw, and the way to set it.
  std::uint64_t position() const { return position_; }
  void Seek(std::uint64_t position) { position_ = position; }

 private:
  std::uint64_t seed_;
  std::uint64_t stream_;
  std::uint64_t position_ = 0;
  // The block last computed by Bits(): two draws come out of each.
  std::uint64_t cached_block_ = ~std::uint64_t{0};
  std::array<std::uint64_t, 2> cached_{};
};

}  // namespace ttr
