/// Decoding: a state, and what an engine keeps beside it from token to token.
///
///     ttr::Decoder decoder(layer, dims);
///     decoder.Start(state);                          // left by Layer::Forward of the prompt
///     for (...) decoder.Step({.q = q, ...}, {.y = y});
///     const ttr::State& state = decoder.state();     // true again
///
/// A step of a Decoder moves less memory than Layer::Step. Least squares: a factor that is updated
/// with every token stands for "state.a" and "state", half of what is read and written, O(D^2).
/// Memories that erase as they write (the delta family): a token's write is deferred to the next
/// one, which does it while it reads, so that the state passes once and not twice; the engine does
/// so where the size of the states makes that the faster way. What is deferred is flushed when the
/// state is asked for. (Decoding.AnswersAsStepsDo, Decoding.TellsTheStateAtAnyTime in
/// tests/layer/decoder_test.cc; where nothing is deferred DecodingElsewhere.ChangesNothing.)
///
/// Drafts. A step takes any number of tokens, and RollBack() takes back the last ones: the decoder
/// then answers, bit for bit, as one that never saw them (Drafts in tests/layer/drafts_test.cc).
///
///     ttr::Decoder decoder(layer, dims, {.draft = 4});
///     decoder.Step({.q = q4, ...}, {.y = y4});       // four tokens that are only guessed
///     decoder.RollBack(3);                           // the first was right
///
/// Memories that are written by rank-one steps (the delta and Hebbian families) then keep the pairs
/// of the last tokens beside the state, and to go back is to leave some out. Others are copied
/// before every token; of pairs that are kept fewer count, but for those of a window or with
/// logarithmic weights, which are copied (docs/decoding.md).
///
/// States of two bytes a number. With `state = DType::kBFloat16` or kFloat16 the matrix of a memory
/// lies in half of its bytes; what is beside it stays float32.
/// Arithmetic is float32. The matrix is rounded, to nearest, only when pairs that wait are added to
/// it: every `window` tokens. A Memorize() rounds it at once. state() is float32, a copy with all
/// that waits, and rounds nothing. docs/decoding.md has the errors.
///
/// The caller may give the memory for all of it, Bytes() at a multiple of 64: an operator without a
/// lifetime of its own keeps it in a tensor and makes a Decoder over it for every token. Zeros
/// there mean the recipe's start. The memory holds no address and may be moved between steps
/// (Decoding.KeepsAllInTheCallersMemory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "ttr/layer.h"

namespace ttr {

struct Pendency;

struct DecoderOptions {
  /// Or float64; or, where writes can wait (KeepsDrafts()), bfloat16 or float16, see above.
  DType state = DType::kFloat32;
  std::span<std::byte> memory{};  ///< the caller's, see above; empty: owned
  std::int64_t draft = 0;         ///< tokens that RollBack() can take back, 0 to 64
  /// Tokens after which a state is written where writes wait, beside those of a draft, 1 to 64;
  /// 0: as the engine chooses (8 where a state is rounded). The numbers are the same to rounding.
  /// With a window or a draft a step whose writes wait allocates its scratch.
  std::int64_t window = 0;
  /// Decoders that are run together: which way is the fastest depends on the size of all states.
  std::int64_t together = 1;
};

class Decoder {
 public:
  /// Tokens of a draft, and of a window, at most.
  static constexpr std::int64_t kMostTokens = 64;

  /// Bytes for a decoder of this layer at these sizes (B and heads count, T does not); 0 where the
  /// memory keeps its pairs and grows: such a decoder owns its state
  /// (DecoderErrors.NameWhatIsWrong).
  static std::size_t Bytes(const Layer& layer, const Dims& dims, DType state = DType::kFloat32);
  static std::size_t Bytes(const Layer& layer, const Dims& dims, const DecoderOptions& options);

  /// Do the writes of this layer's tokens wait beside the state where a draft is asked for, so that
  /// no copies are needed to take them back?
  static bool KeepsDrafts(const Layer& layer);

  /// `layer` must outlive the decoder. `memory`: the caller's, which holds zeros or what another
  /// decoder of the same layer, sizes and dtype left there; empty: owned. Errors: a layer that is
  /// not causal, dims that no call can have, memory that is too small, not aligned, or of another
  /// layer (DecoderErrors.NameWhatIsWrong).
  Decoder(const Layer& layer, const Dims& dims, DType state = DType::kFloat32,
          std::span<std::byte> memory = {});
  /// Errors also: a draft that memory of the caller's cannot keep, options out of range.
  Decoder(const Layer& layer, const Dims& dims, const DecoderOptions& options);
  /// A copy goes on by itself, with what is deferred (Decoding.IsCopiedAndMovedWithWhatIsDeferred).
  Decoder(const Decoder& other);
  Decoder& operator=(const Decoder& other);
  Decoder(Decoder&&) = default;
  Decoder& operator=(Decoder&&) = default;

  /// Goes on from a copy of `state`; empty: from the recipe's start (Decoding.GoesOnFromAPrompt).
  void Start(const State& state);

  /// Layer::Forward of a token or of several, Memorize of one, and Retrieve. Sizes are those of the
  /// constructor. Reports that the engine does not have are the definition's, of a copy of the
  /// state (Reports.OfADecoderAreThoseOfTheWhole in tests/layer/reports_test.cc).
  void Step(const Inputs& inputs, const Outputs& outputs, const CallOptions& options = {});
  void Memorize(const Inputs& inputs, const CallOptions& options = {});
  /// Behind a Step whose write is deferred it reads a flushed copy: cheap where Memorize and
  /// Retrieve alternate, O(H D^3) for least squares behind Step. Kernel regression keeps its factor
  /// from step to step, a half S x S matrix; Retrieve factors anew
  /// (Decoding.MemorizesAndRetrievesBehindSteps).
  void Retrieve(const Inputs& inputs, const Outputs& outputs,
                const CallOptions& options = {}) const;

  /// Tokens that RollBack() can take back now: at least min(DecoderOptions::draft, tokens since the
  /// start, the last Memorize() or state()). Where writes wait, tokens whose decays multiply to
  /// less than 2^-30 are written before others come, and one whose decay is below 2^-60 at once, as
  /// the first of mLSTM, whose memory was empty.
  std::int64_t pending() const;
  /// Forgets the last tokens, as if they had never been. Error: more than pending().
  void RollBack(std::int64_t tokens);

  /// The state as after the last token; empty before the first. Writes what waits, O(H D^3) for
  /// least squares, about a token's cost elsewhere; nothing can be taken back then. Its views stay
  /// valid, and are written by later steps (Decoding.TellsTheStateAtAnyTime). A narrow state is
  /// left as it is: this is a copy in float32, until the next state().
  const State& state(const CallOptions& options = {});

  /// What the engine keeps beside the state where nothing is deferred: a factor, no part of the
  /// memory. Whoever saves a state and wants later answers bit for bit saves it, too. Undefined
  /// where there is none.
  TensorView auxiliary() const;
  /// Puts it back, behind Start(); of another shape it is an Error
  /// (LeastSquaresStep.GoesOnBitForBitWithItsFactor).
  void SetAuxiliary(const TensorView& numbers);

 private:
  friend class AssociativeMemory;
  friend class StatePool;
  struct Header;
  struct Unattached {};
  /// What follows from the layer and the sizes alone; there is no memory.
  Decoder(const Layer& layer, const Dims& dims, const DecoderOptions& options, Unattached);
  std::uint64_t Fingerprint() const;
  /// What was before a token.
  struct Kept {
    Tensor memory;  // all bytes of it; or of pairs
    State state;
    Tensor pair_numbers;
  };
  Header& header() const;
  void Attach(std::span<std::byte> memory);
  void StartFrom(const State& state);
  void Begin(const State& state);
  /// The memory before and behind the entries of the state.
  std::span<std::byte> Before() const;
  std::span<std::byte> Behind() const;
  /// Retrieve of a layer that has the same memory.
  void Read(const Layer& reader, std::string_view op, const Inputs& inputs, const Outputs& outputs,
            const CallOptions& options) const;
  TensorView Auxiliary() const;
  std::int64_t AuxiliaryNumbers(bool defers) const;
  Pendency pendency() const;
  /// Do pairs wait beside the state, as was asked for?
  bool PairsWait() const;
  bool Defers() const;
  /// Has what is beside the state what its entries lack?
  bool stale() const;
  /// Steps a token at a time, and keeps what RollBack() needs of what was before each.
  void StepOneByOne(const Inputs& inputs, const Outputs& outputs, const CallOptions& options);
  Kept Snapshot() const;
  void ForgetDrafts();
  bool IsPrepared(bool defers) const;
  TensorView PrepareAuxiliary(bool defers, Executor& executor);
  State NoPairs() const;  // a state that keeps none, of this dtype
  void Run(std::string_view op, const Inputs& inputs, const Outputs& outputs, bool reads,
           const CallOptions& options);
  void Flush(Executor& executor);
  /// A copy of a narrow state in float32, with all that waits.
  State WideState(Executor& executor) const;

  const Layer* layer_;
  Dims dims_;
  DType dtype_;
  Tensor owned_;                   // where the caller gave no memory
  std::span<std::byte> memory_{};  // header, entries of the state, auxiliary numbers
  std::size_t behind_ = 0;         // where the entries end
  State state_;                    // views of memory_; of pairs, tensors of its own
  Tensor pair_numbers_;            // auxiliary, of pairs
  State wide_{};                   // what state() gave, of a narrow one
  std::int64_t draft_ = 0, window_ = 0, together_ = 1;
  std::vector<Kept> kept_{};      // of each of the last tokens, where RollBack() needs copies
  std::int64_t tokens_kept_ = 0;  // where it needs only their number
};

}  // namespace ttr
