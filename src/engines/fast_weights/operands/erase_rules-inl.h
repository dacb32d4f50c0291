// Erase rules: the row r along which a delta memory erases, and what changes of the row w along
// which it writes; beside them the gradients of what a token gives for them. A new rule is one
// EraseRule and one line in WithEraseRule(). Rows are whole vectors, padded with zeros. Compiled
// once for every target.

#if defined(TTR_FAST_WEIGHTS_OPERANDS_ERASE_RULES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_OPERANDS_ERASE_RULES_INL_H_
#undef TTR_FAST_WEIGHTS_OPERANDS_ERASE_RULES_INL_H_
#else
#define TTR_FAST_WEIGHTS_OPERANDS_ERASE_RULES_INL_H_
#endif

#include <cstdint>

#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

/// What a token gives beside its key.
template <class T>
struct TokenInputs {
  using Operand = Rows Operands<Rows>::*;

  const Memory& memory;
  std::int64_t token;
  std::int64_t stride;  // numbers in a row

  HWY_INLINE void Row(Operand of, T* to) const {
    LoadPadded(memory.inputs.*of, token, memory.dims.key_dim, stride, to);
  }
  HWY_INLINE T Number(Operand of) const { return LoadOne<T>(memory.inputs.*of, token); }
};

/// Rows of a pair, and their gradients; d_key is also that of w where w is the key.
template <class T>
struct EraseGradients {
  const T* key;
  const T* erase;  // r, or e of a separate value key
  const T* d_write;
  T* d_key;
  T* d_erase;  // null where nothing is erased, or r has no row of its own
};

/// A rule that lacks its rows or its gradients does not compile.
///
///     Load(inputs, key, erase, write)              r into `erase`; w is the key already
///     Gradients(inputs, rows, row, write)          from d_erase and d_write to d_key (and d_erase,
///         where it is the gradient of `erase_key`); write(from, count, operand) leaves those of
///         inputs, `row` is room for one
template <Erase RULE>
struct EraseRule;

/// r = k: no row of its own.
template <>
struct EraseRule<Erase::kKey> {
  template <class T>
  static HWY_INLINE void Load(const TokenInputs<T>&, const T*, T*, T*) {}
  template <class T, class Write>
  static HWY_INLINE void Gradients(const TokenInputs<T>& inputs, const EraseGradients<T>& g, T*,
                                   const Write&) {
    if (g.d_erase != nullptr) AddMultiple(T(1), g.d_erase, inputs.stride, g.d_key);
  }
};

/// r = e. The query's correction adds to the gradient of e, which is written behind it.
template <>
struct EraseRule<Erase::kEraseKey> {
  template <class T>
  static HWY_INLINE void Load(const TokenInputs<T>& inputs, const T*, T* erase, T*) {
    inputs.Row(&Operands<Rows>::erase_key, erase);
  }
  template <class T, class Write>
  static HWY_INLINE void Gradients(const TokenInputs<T>&, const EraseGradients<T>&, T*,
                                   const Write&) {}
};

/// r = c (.) k
template <>
struct EraseRule<Erase::kGatedKey> {
  static constexpr auto kGate = &Operands<Rows>::erase_gate;

  template <class T>
  static HWY_INLINE void Load(const TokenInputs<T>& inputs, const T* key, T* erase, T*) {
    inputs.Row(kGate, erase);
    MultiplyRows(erase, key, inputs.stride, erase);
  }
  template <class T, class Write>
  static HWY_INLINE void Gradients(const TokenInputs<T>& inputs, const EraseGradients<T>& g, T* row,
                                   const Write& write) {
    inputs.Row(kGate, row);
    AddProduct(g.d_key, T(1), g.d_erase, row, inputs.stride, g.d_key);
    MultiplyRows(g.d_erase, g.key, inputs.stride, row);
    write(row, inputs.memory.dims.key_dim, kGate);
  }
};

/// r = e, w = c (.) e; the value is written along the key.
template <>
struct EraseRule<Erase::kSeparateValueKey> {
  static constexpr auto kGate = &Operands<Rows>::erase_gate;

  template <class T>
  static HWY_INLINE void Load(const TokenInputs<T>& inputs, const T*, T* erase, T* write) {
    inputs.Row(&Operands<Rows>::erase_key, erase);
    inputs.Row(kGate, write);
    MultiplyRows(erase, write, inputs.stride, write);
  }
  template <class T, class Write>
  static HWY_INLINE void Gradients(const TokenInputs<T>& inputs, const EraseGradients<T>& g, T* row,
                                   const Write& write) {
    inputs.Row(kGate, row);
    AddProduct(g.d_erase, T(1), g.d_write, row, inputs.stride, g.d_erase);
    MultiplyRows(g.d_write, g.erase, inputs.stride, row);
    write(row, inputs.memory.dims.key_dim, kGate);
  }
};

/// use(the rule), as an EraseRule of `rule`.
template <class Use>
HWY_INLINE void WithEraseRule(Erase rule, const Use& use) {
  switch (rule) {
    case Erase::kKey: return use(EraseRule<Erase::kKey>());
    case Erase::kEraseKey: return use(EraseRule<Erase::kEraseKey>());
    case Erase::kGatedKey: return use(EraseRule<Erase::kGatedKey>());
    case Erase::kSeparateValueKey: return use(EraseRule<Erase::kSeparateValueKey>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_OPERANDS_ERASE_RULES_INL_H_
