#!/bin/sh
# kafka-run-class.sh CLASS ARGUMENT...: as Kafka's own, with what a container needs of it.
# shellcheck disable=SC2086  # options are words
exec java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC -Djava.awt.headless=true \
  --enable-native-access=ALL-UNNAMED \
  -Dlog4j2.configurationFile=/opt/kafka/config/log4j2.properties ${KAFKA_OPTS:-} \
  -cp '/opt/kafka/libs/*' "$@"
