#include "src/recipe/axes.h"

namespace ttr {
namespace {

// Joined by commas, in brackets; `item(i)` is the text of entry i.
template <class Item>
std::string Bracketed(std::size_t count, Item item) {
  std::string text = "[";
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += ",";
    text += item(i);
  }
  return text + "]";
}

}  // namespace

std::string AxesText(std::span<const Axis> axes) {
  return Bracketed(axes.size(), [&](std::size_t i) { return std::string(Name(axes[i])); });
}

std::string ShapeText(const Shape& shape) {
  return Bracketed(static_cast<std::size_t>(shape.rank()),
                   [&](std::size_t i) { return std::to_string(shape[static_cast<int>(i)]); });
}

std::string AxisSizes::Text(std::span<const Axis> axes, const Shape& given) const {
  const bool same_rank = static_cast<int>(axes.size()) == given.rank();
  return Bracketed(axes.size(), [&](std::size_t i) {
    if (Known(axes[i])) return std::to_string(Or(axes[i], 0));
    const std::int64_t size = same_rank ? given[static_cast<int>(i)] : 0;
    return size > 0 ? std::to_string(size) : std::string(Name(axes[i]));
  });
}

}  // namespace ttr
