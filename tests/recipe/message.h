#pragma once

#include <string>

#include "ttr/error.h"

namespace ttr {

/// The text of the Error that a call throws; "" when it throws none.
template <class Call>
std::string Message(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace ttr
