// The fixture of the conformance suite: every case runs on every transport of this build.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/conformance/published_bytes.h"

namespace layercast::test {

class Channel : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<FetchingEnd> Connect() {
    return transport_->Connect(publisher_->address(), Deadline::After(kPatience));
  }

  const CountedTransport counted_ = CountedTransportNamed(GetParam());
  const std::unique_ptr<Transport>& transport_ = counted_.transport;
  std::unique_ptr<OfferingEnd> publisher_ = transport_->Offering({.bind_host = HostFrom("LAYERCAST_OWN_HOST")});
};

// Sixteen fetches of 2 MB each from tensor 0.
inline std::vector<Fetch> ManyFetches() {
  std::vector<Fetch> fetches;
  for (std::uint64_t i = 0; i < 16; ++i) fetches.emplace_back(std::vector<Region>{{0, i, 2'000'000, 1, 2'000'000}});
  return fetches;
}

// Expects that `step` throws an error with this code, which names the publisher's address but not the secret in it.
template <typename Step>
void ExpectError(ErrorCode code, const std::string& address, const Step& step) {
  try {
    step();
    ADD_FAILURE() << "expected " << ErrorCodeName(code) << ", got no error";
  } catch (const Error& error) {
    EXPECT_EQ(ErrorCodeName(error.code()), ErrorCodeName(code)) << error.what();
    const std::size_t secret = address.find('#');
    EXPECT_NE(std::string(error.what()).find(address.substr(0, secret)), std::string::npos) << error.what();
    if (secret != std::string::npos) {
      EXPECT_EQ(std::string(error.what()).find(address.substr(secret)), std::string::npos) << error.what();
    }
  }
}

}  // namespace layercast::test
