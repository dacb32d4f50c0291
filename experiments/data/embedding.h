/// Fixed random vectors that stand for tokens: nothing here is learned.
///
/// UnitVector is a function of (seed, id): a vocabulary of any size needs no table. Two of them
/// have an inner product of mean 0 and variance 1 / d. OrthonormalVectors makes it exactly 0, which
/// takes d >= count.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ttr::experiments {

/// Writes the unit vector of token `id` >= 0, uniform on the sphere, into `out` (one dimension at
/// least). Cost: d normals.
void UnitVector(std::uint64_t seed, std::int64_t id, std::span<double> out);

/// [count, dim]: row i is UnitVector(seed, i). Throws Error if count < 0 or dim < 1.
std::vector<double> UnitVectors(std::uint64_t seed, std::int64_t count, std::int64_t dim);

/// [count, dim]: orthonormal rows, a uniformly random frame, by Gram-Schmidt on normal vectors
/// (each row is cleaned twice, which leaves inner products of the size of a rounding error). Throws
/// Error unless 0 <= count <= dim. Cost: 4 count^2 dim flops.
std::vector<double> OrthonormalVectors(std::uint64_t seed, std::int64_t count, std::int64_t dim);

}  // namespace ttr::experiments
