/// Slots: the memories of many streams in one piece of memory, of which a call takes some.
///
///     ttr::StatePool pool(layer, dims, 1024);          // dims: those of one stream
///     pool.Step(slots, {.q = q, .k = k, .v = v}, {.y = y});   // row b of the batch is slots[b]'s
///     pool.At(7).RollBack(2);                          // a slot is the memory of a Decoder
///     pool.Copy(7, 8);                                 // a fork, by its bytes
///     pool.Free(7);                                    // the recipe's start again
///
/// A server has more streams than a call has rows, and other ones in every call. A slot holds all
/// of a stream: the state, what waits beside it (each slot has a number of pending tokens of its
/// own), and whether anything has been memorized. It holds no address: its bytes may be copied,
/// moved or stored. Calls on a pool answer, bit for bit, as the Decoder of each stream would
/// (Pool.AnswersAsDecodersDo in tests/layer/state_pool_test.cc).
///
/// Threads: calls on disjoint slots may run at the same time (Pool.TakesThreadsOnDisjointSlots).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ttr/decoder.h"
#include "ttr/layer.h"

namespace ttr {

class StatePool {
 public:
  /// Bytes of a slot, a multiple of 64. Errors: as the constructor.
  static std::size_t SlotBytes(const Layer& layer, const Dims& dims,
                               const DecoderOptions& options = {});

  /// `layer` must outlive the pool. `dims` are those of one stream (B = 1, not packed).
  /// `options.memory`: the caller's, `slots` times SlotBytes() at a multiple of 64, of zeros or of
  /// what another pool of the same layer, sizes and options left there; empty: owned. Errors: those
  /// of Decoder, and a recipe that keeps its pairs, whose memory grows (a Decoder each is its
  /// pool).
  StatePool(const Layer& layer, const Dims& dims, std::int64_t slots,
            const DecoderOptions& options = {});
  StatePool(StatePool&&) = default;
  StatePool& operator=(StatePool&&) = default;
  StatePool(const StatePool&) = delete;
  StatePool& operator=(const StatePool&) = delete;

  std::int64_t slots() const { return slots_; }
  std::size_t slot_bytes() const { return slot_bytes_; }
  std::span<std::byte> memory() const { return memory_; }

  /// Layer::Forward of each row of the batch, or with `cu_seqlens` of each packed sequence, from
  /// the state of its slot, which is left there as after the last token. A slot of -1: its row is
  /// not looked at, and its outputs are 0. Tokens are one, several (a draft, where the options have
  /// one), or a prompt. Packed ones answer as Layer::Forward does: the Decoder's numbers to
  /// rounding. Errors, and nothing is written: slots out of range, equal, or not as many as there
  /// are sequences, and those of Decoder::Step.
  void Step(std::span<const std::int64_t> slots, const Inputs& inputs, const Outputs& outputs,
            const CallOptions& options = {});

  /// The decoder of a slot, over its memory: Start(), state(), pending(), RollBack(), Retrieve().
  /// It sees what calls on the pool do only where it is made anew.
  Decoder At(std::int64_t slot) const;
  /// Copies a slot: the stream goes on in both.
  void Copy(std::int64_t from, std::int64_t to) const;
  /// Forgets all of a slot.
  void Free(std::int64_t slot) const;

 private:
  struct Rows;
  struct Part;
  /// What follows from the layer and the sizes.
  struct Facts {
    std::uint64_t fingerprint = 0;
    bool pairs_wait = false, defers = false;
    std::int64_t numbers[2] = {};

    std::int64_t Numbers(bool waiting) const { return numbers[waiting ? 1 : 0]; }
  };
  std::span<std::byte> MemoryOf(std::int64_t slot) const;
  Decoder::Header& HeaderOf(std::int64_t slot) const;
  void RequireSlot(std::string_view op, std::int64_t slot) const;
  void CheckSlots(std::span<const std::int64_t> slots, std::int64_t sequences) const;
  /// The state, and what is beside it, of so many slots from one on.
  State StatesOf(std::int64_t first, std::int64_t slots) const;
  /// The shapes and types of so many states: their counts are zeros, for the slots that lie there
  /// may be at work in other threads.
  State ShapesOf(std::int64_t slots) const;
  TensorView NumbersOf(std::int64_t first, std::int64_t slots, std::int64_t numbers) const;
  std::vector<Part> Neighbours(std::span<const std::int64_t> slots, const Inputs& inputs,
                               const Outputs& outputs) const;
  /// Gives new streams their start, and makes room beside the state. Returns the new ones.
  std::vector<std::int64_t> Prepare(const Rows& rows, bool defers, Executor& executor) const;
  void Run(const Rows& rows, const CallOptions& options) const;

  const Layer* layer_;
  Dims dims_;
  DecoderOptions options_;
  std::int64_t slots_;
  std::size_t slot_bytes_ = 0;
  Facts facts_{};
  Tensor owned_{};
  std::span<std::byte> memory_{};
};

}  // namespace ttr
