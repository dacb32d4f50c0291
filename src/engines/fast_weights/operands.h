/// The tensors of a memory, listed once: what it takes a token, and the state that it leaves. The
/// same list names the tensors of a call and of its gradients (View is TensorView), and one
/// memory's share of both (View is simd::Rows).
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

namespace ttr::fast_weights {

/// Inputs; shapes and meanings are those of fast_weights.h.
template <class View>
struct Operands {
  View q{}, k{}, v{};
  View log_decay{}, phase{}, step{}, importance{};
  View erase_key{}, erase_gate{}, momentum{}, weight_decay{};
  View bonus{}, features_w{}, features_b{};
};

/// Entries of the state.
template <class View>
struct StateOperands {
  View state{}, second{};
  View sum{}, maximum{}, curvature{}, position{};
};

/// What an operand has a row for.
enum class Per : std::uint8_t {
  kQuery,  // a token and query head
  kStep,   // a step of a token, and head
  kToken,  // a token and head
  kHead,   // a head: constants
};

template <class View>
struct Operand {
  View Operands<View>::* view;
  Per per;
};

// Tables have one order, whatever View is: entry i of two of them is the same operand.

template <class View>
inline constexpr Operand<View> kOperands[] = {
    {&Operands<View>::q, Per::kQuery},
    {&Operands<View>::k, Per::kStep},
    {&Operands<View>::v, Per::kStep},
    {&Operands<View>::log_decay, Per::kToken},
    {&Operands<View>::phase, Per::kToken},
    {&Operands<View>::step, Per::kStep},
    {&Operands<View>::importance, Per::kToken},
    {&Operands<View>::erase_key, Per::kToken},
    {&Operands<View>::erase_gate, Per::kToken},
    {&Operands<View>::momentum, Per::kToken},
    {&Operands<View>::weight_decay, Per::kToken},
    {&Operands<View>::bonus, Per::kHead},
    {&Operands<View>::features_w, Per::kHead},
    {&Operands<View>::features_b, Per::kHead},
};

template <class View>
inline constexpr View StateOperands<View>::* kStateOperands[] = {
    &StateOperands<View>::state,   &StateOperands<View>::second,    &StateOperands<View>::sum,
    &StateOperands<View>::maximum, &StateOperands<View>::curvature, &StateOperands<View>::position,
};

/// visit(a's view, b's view, per) for every input. Unrolled: a decode visits them for every memory.
template <class A, class B, class Visit>
void ForEachOperand(const Operands<A>& a, Operands<B>& b, const Visit& visit) {
  [&]<std::size_t... kI>(std::index_sequence<kI...>) {
    (visit(a.*kOperands<A>[kI].view, b.*kOperands<B>[kI].view, kOperands<A>[kI].per), ...);
  }(std::make_index_sequence<std::size(kOperands<A>)>());
}

/// visit(a's view, b's view) for every entry of the state.
template <class A, class B, class Visit>
void ForEachOperand(const StateOperands<A>& a, StateOperands<B>& b, const Visit& visit) {
  [&]<std::size_t... kI>(std::index_sequence<kI...>) {
    (visit(a.*kStateOperands<A>[kI], b.*kStateOperands<B>[kI]), ...);
  }(std::make_index_sequence<std::size(kStateOperands<A>)>());
}

}  // namespace ttr::fast_weights
