// The section of trained layers on the page of ttr demo.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/io/temp_folder.h"
#include "tools/demo_trained.h"
#include "ttr/error.h"

namespace ttr::tools {
namespace {

std::string Write(const test::TempFolder& folder, const std::string& text) {
  const std::string path = (folder.path() / "mqar-trained.csv").string();
  std::ofstream(path) << text;
  return path;
}

TEST(Demo, DrawsAPanelForEachArchitectureAndNumberOfPairs) {
  const test::TempFolder folder;
  const report::Section section = TrainedSection(
      Write(folder,
            "method,architecture,pairs,width,rate,tokens,accuracy,standard_error,seeds,seconds\n"
            "RLS,strict,64,64,0.01,256,0.9712,0.0031,3,70\n"
            "RLS,strict,64,64,0.01,512,0.9702,0.0030,3,70\n"
            "RLS,gate,128,64,0.01,512,0.9962,,1,70\n"
            "softmax,gate,128,64,0.01,512,1.0,,1,70\n"));
  ASSERT_EQ(section.figures.size(), 1U);
  const std::string& svg = section.figures[0].svg;
  for (const char* text : {"strict, P = 64, d = 64", "gate, P = 128, d = 64", "RLS", "softmax"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(section.command, "python -m ttr.experiments mqar");
}

TEST(Demo, RefusesAnotherTable) {
  const test::TempFolder folder;
  const std::string path = Write(folder, "method,pairs\nRLS,64\n");
  try {
    TrainedSection(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("a column architecture"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ttr::tools
