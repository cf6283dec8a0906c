// What a composite file holds beside its text model: told, and not counted.
#pragma once

#include "models/import/hf_reader.hpp"

namespace fathom {

// Notes about the towers that are left out ("vision_config", "audio_config"): what they are, how many parameters the matrices of their layers have where the file says
// enough, and every key of theirs as ignored.
void note_left_out(HfReader& outer);

}  // namespace fathom
