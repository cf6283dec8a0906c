// What each command can print and save: the one list from which its help, its completion, its checks and its refusals are made.
#pragma once

#include <string>
#include <vector>

namespace fathom {

struct OutputOffer {
  std::string command;
  std::vector<std::string> formats;  // of -o
  std::vector<std::string> files;    // endings of --save without the point, those of plots apart
  bool plots = false;                // the report may have some: --save FILE.svg, .png, .gp
};

const OutputOffer& output_offer(const std::string& command);

// The help of -o and of --save.
std::string output_text(const OutputOffer& offer);
std::string save_text(const OutputOffer& offer);

// "md" of "a.markdown", "table" of "a.txt": the format that a file is written in.
std::string format_of_file(const std::string& path);

// Throw Error(kInput) for what the command cannot write, with what it can.
void check_format(const OutputOffer& offer, const std::string& format);
void check_save(const OutputOffer& offer, const std::string& path);

}  // namespace fathom
