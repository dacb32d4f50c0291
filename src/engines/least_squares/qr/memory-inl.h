// A memory whose state is a triangle: row by row, query by query. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_QR_MEMORY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_QR_MEMORY_INL_H_
#undef TTR_LEAST_SQUARES_QR_MEMORY_INL_H_
#else
#define TTR_LEAST_SQUARES_QR_MEMORY_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/qr/rotations-inl.h"
#include "src/engines/least_squares/qr/singular.h"
#include "src/engines/least_squares/sequence/gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

class RotatedMemory {
 public:
  RotatedMemory(const Options& options, const Memory& memory, DType state,
                const RotationScratch& scratch)
      : o_(options), m_(memory), state_(state), s_(scratch), t_(scratch.memory) {}

  void Run() {
    Load();
    const bool writes = m_.writes();
    for (std::int64_t t = 0; t < m_.tokens; ++t) {
      if (o_.read_before || !writes) Answer(t);
      if (writes) Write(t);
      if (writes && o_.causal && !o_.read_before) Answer(t);
    }
    if (!writes) return;
    if (!o_.causal) {
      for (std::int64_t t = 0; t < m_.tokens; ++t) Answer(t);
    }
    Store();
  }

  // ---- What gradients (gradient-inl.h) take of it, too
  // ---------------------------------------------

  /// The triangle of the caller's state.
  void Load() {
    changed_ = true;
    LoadRows();
  }
  void Write(std::int64_t t) {
    Fade(std::exp(LogDecay(m_, t)));
    const double weight = ImportanceOf(m_, t);
    if (weight == 0) return;  // no row, whatever it holds
    double* const keys = s_.row + value_dim();
    sn::LoadRow(m_.v, t, 0, value_dim(), s_.row);
    sn::LoadRow(m_.k, t, 0, key_dim(), keys);
    for (std::int64_t i = 0; i < key_dim(); ++i) t_.squares[i] += weight * keys[i] * keys[i];
    const double left = RotateIn(t_, weight, key_dim(), s_.row);
    if (left != 0) {
      for (std::int64_t c = 0; c < value_dim(); ++c) s_.rss[c] += left * s_.row[c] * s_.row[c];
    }
    changed_ = true;
  }

  /// The triangle that answers are from, with its ridge.
  const Triangle& Solved() {
    const bool apart = o_.ridge != Ridge::kInState;
    const Triangle& solved = apart ? s_.ridged : t_;
    if (!changed_) return solved;
    changed_ = false;
    if (apart) AddRidge();
    regular_ = IsRegular(solved);
    singular_.Forget();
    return solved;
  }
  /// Has it all directions? Else its solutions are those of singular().
  bool regular() const { return regular_; }
  SingularTriangle& singular() { return singular_; }

 private:
  std::int64_t key_dim() const { return t_.key_dim; }
  std::int64_t value_dim() const { return t_.value_dim; }

  Rows StateRows(void* data, std::int64_t stride) const { return {data, state_, stride}; }

  void LoadRows() const {
    const Rows r = StateRows(m_.state.a, m_.state.a_stride);
    const Rows w = StateRows(m_.state.b, m_.state.b_stride);
    std::fill(s_.row, s_.row + t_.stride, 0.0);
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      double* const row = t_.Row(i);
      sn::LoadRow(w, i, 0, value_dim(), row);
      sn::LoadRow(r, i, 0, i + 1, row + value_dim());
      t_.d[i] = row[value_dim() + i];
      std::fill(row + value_dim() + i, row + t_.stride, 0.0);
    }
    SumSquares(t_);
    sn::LoadRow(StateRows(m_.state.rss, 0), 0, 0, value_dim(), s_.rss);
  }

  void Store() const {
    const Rows r = StateRows(m_.state.a, m_.state.a_stride);
    const Rows w = StateRows(m_.state.b, m_.state.b_stride);
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      double* const row = t_.Row(i);
      double* const keys = row + value_dim();
      keys[i] = t_.d[i];
      std::fill(keys + i + 1, keys + key_dim(), 0.0);
      sn::StoreRow(row, i, 0, value_dim(), w);
      sn::StoreRow(keys, i, 0, key_dim(), r);
    }
    sn::StoreRow(s_.rss, 0, 0, value_dim(), StateRows(m_.state.rss, 0));
  }

  /// The diagonal of A = L^T D L.
  static void SumSquares(const Triangle& t) {
    for (std::int64_t i = 0; i < t.key_dim; ++i) {
      const double* const keys = t.Row(i) + t.value_dim;
      t.squares[i] = t.d[i];
      for (std::int64_t j = 0; j < i; ++j) t.squares[j] += t.d[i] * keys[j] * keys[j];
    }
  }

  void Fade(double g) {
    if (g == 1) return;
    changed_ = true;
    if (g == 0) {
      std::fill(t_.rows, t_.rows + key_dim() * t_.stride, 0.0);
      std::fill(t_.d, t_.d + key_dim(), 0.0);
      std::fill(t_.squares, t_.squares + key_dim(), 0.0);
      std::fill(s_.rss, s_.rss + value_dim(), 0.0);
      return;
    }
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      t_.d[i] *= g;
      t_.squares[i] *= g;
    }
    for (std::int64_t c = 0; c < value_dim(); ++c) s_.rss[c] *= g;
  }

  void Answer(std::int64_t t) {
    if (m_.queries == 0) return;
    const Triangle& solved = Solved();
    for (std::int64_t r = 0; r < m_.queries; ++r) {
      double* const q = s_.row + value_dim();
      sn::LoadRow(QueryRows(m_, r), t, 0, key_dim(), q);
      for (std::int64_t i = 0; i < key_dim(); ++i) q[i] *= o_.scale;
      if (regular_) {
        std::fill(s_.row, s_.row + value_dim(), 0.0);
        SubtractAnswer(solved, s_.row);
        for (std::int64_t c = 0; c < value_dim(); ++c) s_.row[c] = -s_.row[c];
      } else {
        singular_.Load(solved);
        const bool finite = singular_.Read(q, s_.row);
        if (finite && !singular_.regular()) MarkRegularised(m_, t, r);
      }
      sn::StoreRow(s_.row, t, 0, value_dim(), OutputRows(m_, r));
    }
  }

  /// A ridge is a row for every channel.
  void AddRidge() const {
    const Triangle& to = s_.ridged;
    std::copy(t_.rows, t_.rows + key_dim() * t_.stride, to.rows);
    std::copy(t_.d, t_.d + key_dim(), to.d);
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      to.squares[i] = t_.squares[i] + m_.ridge[i];
      if (m_.ridge[i] == 0) continue;
      std::fill(s_.row, s_.row + to.stride, 0.0);
      s_.row[value_dim() + i] = 1;
      RotateIn(to, m_.ridge[i], i + 1, s_.row);
    }
  }

  const Options& o_;
  const Memory& m_;
  const DType state_;
  const RotationScratch& s_;
  const Triangle& t_;
  bool changed_ = true;  // since it was last solved
  bool regular_ = false;
  SingularTriangle singular_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_QR_MEMORY_INL_H_
