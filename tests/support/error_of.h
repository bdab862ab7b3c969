// The message of the error that a call throws. Header-only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "layercast/error.h"

namespace layercast::testing {

// The message of the Error that `call` throws; "no error" if it throws none.
inline std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// Likewise. Also expects that the Error has this code.
inline std::string ErrorOf(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace layercast::testing
