/* SPDX-License-Identifier: Apache-2.0 */
/* The host kernels of GreedySearch, Sampling and BeamSearch (com.microsoft), and the order of what they read and make.
 *
 * Sizes: B sequences of the batch; `beams` of each are followed at once, rows = B * beams (1 beam but in BeamSearch);
 * M = max_length, V the vocabulary, S the length of input_ids. A row is a sequence that is being followed: the beams of one
 * sequence of the batch stand next to each other. */
#ifndef ONNXFUSE_OPS_GENERATION_SEARCH_H
#define ONNXFUSE_OPS_GENERATION_SEARCH_H

#include "lowering/ops.h"

typedef enum SearchKind { SEARCH_GREEDY, SEARCH_SAMPLING, SEARCH_BEAM } SearchKind;
#define SEARCH_KIND "search_kind" /* attribute of SearchStep and its kernel */
#define LENGTH_AXIS "length_axis" /* attribute of SearchStep: of the caches */

enum {
    MOST_BEAMS = 1024,
    MOST_LENGTH = 1 << 20, /* of max_length: tables of rows * max_length numbers are made before the first token */
};

/* The state of a search, from one token to the next. What a kind of search does not have is left out. */
typedef enum SearchState {
    STATE_HISTORY,      /* i32 [rows, M]: tokens, `pad_token_id` behind the last one */
    STATE_PROGRESS,     /* i32 [B, PROGRESS]: see below */
    STATE_OPEN,         /* BeamSearch: f32 [rows], the sum of each row's log probabilities */
    STATE_ENDED,        /* BeamSearch: i32 [B, beams, 1 + M], the best that have ended, best first: length, tokens */
    STATE_ENDED_SCORES, /* BeamSearch: f32 [B, beams] */
    STATE_ENGINE,       /* Sampling: i64 [1], of the random numbers */
    STATES,
} SearchState;
enum {
    PROGRESS_LENGTH,
    PROGRESS_ENDED,
    PROGRESS_DONE,
    PROGRESS
}; /* tokens so far, how many have ended, nothing more to do */

/* Inputs of the prompt's kernel, each as the operator has it. */
typedef enum PromptInput {
    PROMPT_IDS,              /* i32 [B, S]; Whisper's decoder_input_ids */
    PROMPT_MASK,             /* i32 [B, S], or none */
    PROMPT_MOST,             /* max_length; what follows may be left out */
    PROMPT_BEAMS,            /* num_beams */
    PROMPT_RETURNED,         /* num_return_sequences */
    PROMPT_REPETITION,       /* repetition_penalty */
    PROMPT_SEED,             /* seed */
    PROMPT_LOGITS_PROCESSOR, /* logits_processor */
    PROMPT_INPUTS,
} PromptInput;
/* Its outputs; the first state follows. */
typedef enum PromptOutput {
    PROMPT_START,         /* T5's form: i32 [B, 1], decoder_start_token_id; else none */
    PROMPT_SEEN,          /* i32 [B, S]: the attention mask */
    PROMPT_POSITIONS,     /* i32 [B, S]; this and the next two are none in T5's form */
    PROMPT_NEXT_POSITION, /* i32 [rows, 1]: of the first new token */
    PROMPT_ROOM,          /* i32 [rows, M]: the mask of the prompt, then ones */
    PROMPT_STATE,
    PROMPT_OUTPUTS = PROMPT_STATE + STATES,
} PromptOutput;

/* Inputs of the kernel that chooses tokens; the state follows. */
typedef enum StepInput {
    STEP_SCORES,         /* f32 [rows, V], or [B, V] after the prompt: of BeamSearch log probabilities, else logits */
    STEP_MIN,            /* min_length */
    STEP_REPETITION,     /* repetition_penalty */
    STEP_LENGTH_PENALTY, /* length_penalty */
    STEP_VOCABULARY,     /* vocab_mask i32 [V] */
    STEP_PREFIX,         /* prefix_vocab_mask i32 [B, V]: of the first token alone */
    STEP_PRESENCE,       /* presence_mask i32 [B, V] */
    STEP_STATE,
    STEP_INPUTS = STEP_STATE + STATES,
} StepInput;
/* Its outputs; the state follows. */
typedef enum StepOutput {
    STEP_GO,     /* bool []: something is left to do */
    STEP_TOKENS, /* i32 [rows, 1] */
    STEP_SOURCE, /* i64 [rows]: the row of the decoder's batch that each goes on from */
    STEP_ADDED,  /* BeamSearch: f32 [rows, V], what the choice was made from; an output of the operator */
    STEP_NEW_STATE,
    STEP_OUTPUTS = STEP_NEW_STATE + STATES,
} StepOutput;

/* Inputs of the kernel that gives the results of BeamSearch. */
typedef enum ResultInput {
    RESULT_RETURNED,       /* num_return_sequences */
    RESULT_LENGTH_PENALTY, /* length_penalty */
    RESULT_FIRST_ADDED,    /* STEP_ADDED after the prompt */
    RESULT_ADDED,          /* f32 [iterations, rows, V]: those of the further tokens */
    RESULT_STATE,
    RESULT_INPUTS = RESULT_STATE + STATES,
} ResultInput;

/* Checks the inputs' values, and makes what the decoder reads of the prompt and the first state. Attribute dims "encoded": sequences of input_ids, which
 * must be those of the prompt. */
Status host_search_prompt(HostCall *call);
/* Chooses the next tokens. Attribute dims "cached": the length of the decoder's caches, which must be the tokens so far. */
Status host_search_step(HostCall *call);
/* Outputs: sequences i32 [B, num_return_sequences, M], their scores f32 [B, num_return_sequences], and f32
 * [steps, B, beams, V], zeros where no token was chosen any more. Attribute dims "steps": most tokens that are chosen. */
Status host_search_result(HostCall *call);

#endif
