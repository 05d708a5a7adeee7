#!/bin/sh
# Gives a command each secret, a file in /run/secrets, as the environment variable of the file's name. Prefect and the
# drivers of PostgreSQL read their passwords from the environment only.
set -eu
for file in /run/secrets/*; do
  [ -f "$file" ] || continue                  # the pattern itself if there are none; Kubernetes has a folder here
  name=${file##*/}
  if ! [ -r "$file" ]; then
    echo "error: the user $(id -u) may not read the secret $name: make its file readable, as in chmod 644 FILE; the folder that it is in may stay closed" >&2
    exit 2
  fi
  if ! [ -s "$file" ]; then
    echo "error: the file of the secret $name is empty" >&2
    exit 2
  fi
  export "$name=$(cat "$file")"               # without line breaks at the end
done
exec "$@"
