/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs that a search runs: which there are, and what each of their inputs and outputs is. */
#ifndef ONNXFUSE_OPS_GENERATION_FORM_H
#define ONNXFUSE_OPS_GENERATION_FORM_H

#include "lowering/build.h"

/* GPT-2's: decoder (and init_decoder, which reads the prompt in its place) from input_ids, position_ids, attention_mask and a cache a
 * layer, past_0.. [2, rows, heads, length, size], to logits and present_0..
 *
 * T5's: encoder from encoder_input_ids, encoder_attention_mask to the keys and values of cross attention, present_key_cross_0,
 * present_value_cross_0..; decoder from input_ids [rows, 1], encoder_attention_mask, perhaps encoder_hidden_states, the caches of self
 * attention, past_key_self_0, past_value_self_0.. [rows, heads, length, size], and those of cross attention, to logits and
 * present_key_self_0.. An encoder that also has the input decoder_input_ids runs the decoder's first step, too: its outputs are logits,
 * encoder_hidden_states and the caches of both.
 *
 * Whisper's: T5's whose encoder reads features, encoder_input_ids as floats [batch, features, frames], and the first tokens, decoder_input_ids, and
 * always takes the first step; there is no attention mask, and encoder_hidden_states are the decoder's second input where it has them. */
typedef struct Form {
    bool encodes;       /* T5's or Whisper's: there is an encoder */
    bool hears;         /* Whisper's */
    const Graph *first; /* reads the prompt: init_decoder, decoder or encoder */
    const Graph *decoder;
    int caches;                /* that grow with each token; T5: there are as many of cross attention */
    int first_past;            /* the decoder's inputs from here on are caches, those that grow before the others */
    int row_axis, length_axis; /* of caches that grow */
    bool starts;               /* the encoder takes the first step */
    bool reads_hidden;         /* the decoder reads encoder_hidden_states, as the input before its caches */
} Form;

enum { MODEL_GPT, MODEL_T5, MODEL_WHISPER }; /* what the attribute model_type says */

enum {
    FORM_PRESENT = 1,       /* the decoder's outputs: logits, caches */
    FORM_HIDDEN = 1,        /* of an encoder that takes the first step: logits, encoder_hidden_states, */
    FORM_FIRST_PRESENT = 2, /* caches */
};

/* Refuses what is not of one of these forms. */
Status read_form(Lowering *l, const Node *n, Form *form);

#endif
