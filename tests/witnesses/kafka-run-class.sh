#!/bin/sh
# What librdkafka's tests call to run a class with Kafka's clients: CLASSPATH is where they compiled it to.
libs=$(cd "$(dirname "$0")/../libs" && pwd)
exec java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$CLASSPATH:$libs/*" "$@"
