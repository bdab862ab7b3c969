// A transport, but for how it connects: for tests of what a session makes of a channel's behaviour.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/transport/all/transports.h"
#include "src/transport/channel/channel.h"

namespace layercast::testing {

class OtherTransport : public Transport {
 public:
  explicit OtherTransport(const std::string& name = "inproc")
      : honest_(std::move(TransportsNamed(std::vector{name}).front())) {}

  std::string_view name() const override { return honest_->name(); }
  std::string WhyNotBetween(const HostIdentity& mine, const HostIdentity& theirs) const override {
    return honest_->WhyNotBetween(mine, theirs);
  }
  std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const override {
    return honest_->Offering(options);
  }

 protected:
  const std::unique_ptr<Transport> honest_;
};

}  // namespace layercast::testing
