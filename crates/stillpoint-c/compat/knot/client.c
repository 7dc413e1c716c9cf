/*
 * Asks a name server on the loopback for the names n0.zone.test to n9999.zone.test, one after the other in a random order, until it is told to
 * stop (SIGTERM). Prints how many were answered, how many answers were wrong, and how many did not come within a second.
 *
 *   client PORT NAMES
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void end(int signal)
{
    (void)signal;
    stop = 1;
}

static size_t put_label(unsigned char *at, const char *label)
{
    size_t length = strlen(label);
    at[0] = (unsigned char)length;
    memcpy(at + 1, label, length);
    return length + 1;
}

/* A query for the address of a name. */
static size_t query(unsigned char *message, uint16_t id, long name)
{
    char label[32];
    unsigned char *at = message;
    snprintf(label, sizeof label, "n%ld", name);
    memset(message, 0, 12);
    message[0] = (unsigned char)(id >> 8);
    message[1] = (unsigned char)id;
    message[5] = 1;
    at += 12;
    at += put_label(at, label);
    at += put_label(at, "zone");
    at += put_label(at, "test");
    memcpy(at, "\0\0\1\0\1", 5);
    return (size_t)(at + 5 - message);
}

/* An authoritative answer with one record: 10.0.x.y, where the name's number is 256 * x + y. */
static int is_right(const unsigned char *answer, ssize_t length, long name)
{
    return length > 16 && (answer[3] & 15) == 0 && (answer[2] & 4) && answer[7] == 1 && answer[length - 4] == 10 && answer[length - 3] == 0 &&
           answer[length - 2] == name / 256 && answer[length - 1] == name % 256;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "client PORT NAMES PAUSE\n");
        return 2;
    }
    long names = atol(argv[2]), answered = 0, wrong = 0, lost = 0;
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval second = {.tv_sec = 1};
    struct sigaction action = {.sa_handler = end};
    int to = socket(AF_INET, SOCK_DGRAM, 0);
    sigaction(SIGTERM, &action, NULL);
    if (to < 0 || connect(to, (struct sockaddr *)&server, sizeof server) || setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second)) {
        perror("client");
        return 1;
    }
    srandom((unsigned)getpid());
    struct timespec pause = {.tv_nsec = 1000 * atol(argv[3])};
    for (uint16_t id = 1; !stop; id++) {
        if (pause.tv_nsec > 0) {
            nanosleep(&pause, NULL);
        }
        unsigned char message[512], answer[512];
        long name = random() % names;
        size_t length = query(message, id, name);
        if (send(to, message, length, 0) < 0) {
            lost++;
            continue;
        }
        ssize_t got;
        do {
            got = recv(to, answer, sizeof answer, 0);
        } while (got >= 2 && (answer[0] << 8 | answer[1]) != id);
        if (stop) {
            break;
        }
        if (got < 0) {
            lost++;
        } else if (is_right(answer, got, name)) {
            answered++;
        } else {
            wrong++;
        }
    }
    printf("%ld %ld %ld\n", answered, wrong, lost);
    return 0;
}
