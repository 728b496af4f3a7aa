#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The library reads and prints text as in the C locale, whatever locale the program has set: src/base/plain.h is the one place that calls
# what follows the locale. The command line is a program and sets its own; plug-ins print no numbers with a point. Run in the source folder.
set -uo pipefail
words='strtod|strtof|strtold|atof|strfromd|isalpha|isalnum|isdigit|isxdigit|isspace|isblank|isupper|islower|ispunct|isprint|isgraph|iscntrl'
words="$words|tolower|toupper|towlower|towupper|isw[a-z]+|strcasecmp|strncasecmp|strcasestr|strcoll|strxfrm|mb[a-z]*towcs?|wc[a-z]*tombs?|setlocale|localeconv"
words="$words|strptime|strftime|cJSON_Parse[A-Za-z]*|cJSON_Print[A-Za-z]*"
float='%[-+ #0]*(\*|[0-9]+)?(\.(\*|[0-9]+)?)?l?[aAeEfFgG]'
whole='%[-+ #0]*(\*|[0-9]+)?\.0l?f' # has no point
text='^[^:]+:[0-9]+:\s*(/\*|\* |")' # a comment, or a line of a text, such as device code
files=$(find src -name '*.[ch]' -not -path 'src/cli/*' -not -path 'src/base/plain.*' -not -path 'src/policy/json.*' \
  -not -path 'src/ops/*/plugin/*' -not -name '*_plugin.h' | sort)
# The execution provider cannot reach src/base: it prints no number that has a point.
found=$(
  grep -nPH "(?<![A-Za-z0-9_>.])($words)\(" $files | grep -vP "$text"
  grep -nPH "\b(fprintf|printf|snprintf|sprintf|asprintf|dprintf|sscanf|fscanf)\(.*$float" $files | grep -vP "$whole"
  grep -nPH '\b(vsnprintf|vsprintf|vasprintf|strerror)\(' $(printf '%s\n' $files | grep -v '^src/ep/')
  grep -nPH '%[-+ #0]*(\*|[0-9]+)?(\.(\*|[0-9]+)?)?l?[aAeEfFgG]\b' $(find src/ep -name '*.c') | grep -vP "$whole" | grep -vP '^[^:]+:[0-9]+:\s*(/\*|\* )'
)
[ -z "$found" ] || { printf '%s\n' "These follow the locale; src/base/plain.h and src/policy/json.h have what does not:" "$found"; exit 1; }
