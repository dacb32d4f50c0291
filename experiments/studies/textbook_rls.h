/// Recursive least squares as textbooks print it, to be shown failing: the inverse P = A^-1 is what
/// is carried, updated by Sherman and Morrison's formula,
///
///     g = P k / (f + k^T P k)                    the gain
///     M <- M + (v - M k) g^T,   P <- (P - g (P k)^T) / f
///
/// f: forgetting factor, P_0 = I / ridge. In exact arithmetic this is weighted_rls{decay: f, ridge}
/// with the ridge that fades. In floating point nothing pulls P back to the inverse:
///
/// - kGain, as it stands: g (P k)^T is symmetric but for rounding, and the part of P that is not
///   grows by 1 / f a token, whatever the keys.
/// - kSymmetric, (P k) (P k)^T / (f + k^T P k), which is symmetric to the bit: holds as long as
/// keys
///   excite every direction. Where they do not, P grows by 1 / f a token (wind-up), and its
///   rounding errors swamp the directions that count.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ttr::experiments {

enum class Textbook { kGain, kSymmetric };

template <class T>
class TextbookRls {
 public:
  TextbookRls(std::size_t key_dim, std::size_t value_dim, double forgetting, double ridge,
              Textbook form)
      : keys_(key_dim),
        values_(value_dim),
        forgetting_(static_cast<T>(forgetting)),
        form_(form),
        p_(key_dim * key_dim),
        m_(value_dim * key_dim),
        pk_(key_dim),
        gain_(key_dim) {
    for (std::size_t i = 0; i < keys_; ++i) p_[i * keys_ + i] = static_cast<T>(1 / ridge);
  }

  void Memorize(std::span<const double> key, std::span<const double> value) {
    T spread = forgetting_;
    for (std::size_t i = 0; i < keys_; ++i) {
      pk_[i] = 0;
      for (std::size_t j = 0; j < keys_; ++j) pk_[i] += p_[i * keys_ + j] * static_cast<T>(key[j]);
      spread += pk_[i] * static_cast<T>(key[i]);
    }
    for (std::size_t i = 0; i < keys_; ++i) gain_[i] = pk_[i] / spread;
    for (std::size_t c = 0; c < values_; ++c) {
      const T error = static_cast<T>(value[c]) - Answer(key, c);
      for (std::size_t i = 0; i < keys_; ++i) m_[c * keys_ + i] += error * gain_[i];
    }
    for (std::size_t i = 0; i < keys_; ++i) {
      for (std::size_t j = 0; j < keys_; ++j) {
        T& p = p_[i * keys_ + j];
        const T change = form_ == Textbook::kGain ? gain_[i] * pk_[j] : pk_[i] * pk_[j] / spread;
        p = (p - change) / forgetting_;
      }
    }
  }

  void Retrieve(std::span<const double> query, std::span<double> value) const {
    for (std::size_t c = 0; c < values_; ++c) value[c] = static_cast<double>(Answer(query, c));
  }

 private:
  T Answer(std::span<const double> query, std::size_t c) const {
    T sum = 0;
    for (std::size_t i = 0; i < keys_; ++i) sum += m_[c * keys_ + i] * static_cast<T>(query[i]);
    return sum;
  }

  std::size_t keys_, values_;
  T forgetting_;
  Textbook form_;
  std::vector<T> p_;  // P, [keys][keys]
  std::vector<T> m_;  // M, [values][keys]
  std::vector<T> pk_, gain_;
};

}  // namespace ttr::experiments
