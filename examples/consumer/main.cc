#include <array>
#include <cmath>
#include <iostream>

#include "ttr/memory.h"

int main() {
  // A sine obeys x_t = 2 cos(w) x_{t-1} - x_{t-2}; the memory learns that while it reads.
  ttr::AssociativeMemory memory("weighted_rls{decay: 0.99}", {.key_dim = 2, .value_dim = 1});
  std::array<double, 2> lags{};
  std::array<double, 1> forecast{};
  for (int t = 0; t < 200; ++t) {
    const std::array value{std::sin(0.1 * t)};
    memory.Retrieve(lags, forecast);  // before the value is known
    memory.Memorize(lags, value);
    lags = {value[0], lags[0]};
  }
  std::cout << "forecast " << forecast[0] << ", came " << std::sin(0.1 * 199) << "\n";
}
