/// The directions that random feature maps draw where they are not given.
///
/// With z(i) draw number i of NormalAt(seed, stream):
///
/// | kind        | row r of W                                                                 |
/// |-------------|----------------------------------------------------------------------------|
/// | kNormal     | z(r d .. r d + d - 1)                                                      |
/// | kOrthogonal | the same rows, made orthogonal in blocks of d of them (Gram-Schmidt, every |
/// |             | projection taken off twice), each then as long as another normal vector,   |
/// |             | z(rows d + r d ..): every row is a normal vector by itself                 |
/// | kCosine     | z(r) times row r mod d of the orthonormal DCT-II matrix,                   |
/// |             | C_rc = s_r cos(pi (2c + 1) r / 2d), s_0 = sqrt(1/d), else sqrt(2/d)        |
///
/// Cost: rows d draws (kOrthogonal twice those and 4 rows d^2 flops; kCosine `rows` draws).
#pragma once

#include <cstdint>
#include <vector>

namespace ttr {

enum class Directions : std::uint8_t { kNormal, kOrthogonal, kCosine };

/// `rows` directions of length `dim`, one after another.
std::vector<double> DrawDirections(Directions kind, std::uint64_t seed, std::uint64_t stream,
                                   std::int64_t rows, std::int64_t dim);

}  // namespace ttr
