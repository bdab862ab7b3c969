// What suites of a device begin with: one, or a word why they are skipped.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/support/device/test_device.h"

namespace layercast::testing {

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    device_ = MakeTestDevice(why);
    if (device_ == nullptr) GTEST_SKIP() << "no CUDA: " << why;  // the device that a program plays is always there
  }

  std::unique_ptr<TestDevice> device_;
};

}  // namespace layercast::testing
