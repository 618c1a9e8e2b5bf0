/* A closed-loop HTTP/1.1 load generator: each connection sends its next request when the
 * answer to the last has come.
 *
 *   load PORT CONNECTIONS SECONDS REQUEST_FILE
 *
 * Sends the file's bytes, one whole request, again and again, and prints as JSON how many
 * were answered in how long, how many not with 200, how often a connection had to be
 * opened anew, and percentiles of the latencies in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (64 * 1024)
#define CONNECTIONS 4096
#define SAMPLES 4000000

typedef struct { int fd; int64_t began; size_t length; char bytes[BUFFER]; } Connection;

static Connection *connections[CONNECTIONS];
static uint32_t samples[SAMPLES]; /* microseconds */
static size_t answered, refused, reopened;
static char request[BUFFER];
static size_t request_length;
static int epoll, port;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(1); }

static void send_request(Connection *c) {
    c->began = now_ns();
    c->length = 0;
    if (write(c->fd, request, request_length) < 0 && errno != EPIPE && errno != ECONNRESET)
        fail("write");
}

static void open_connection(Connection *c) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (void *)&a, sizeof a)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e)) fail("epoll_ctl");
}

/* Return the length of the whole answer in the buffer, or 0 if it is not all there. */
static size_t whole(Connection *c) {
    char *end = memmem(c->bytes, c->length, "\r\n\r\n", 4);
    if (!end) return 0;
    size_t head = end + 4 - c->bytes, body = 0;
    *end = 0;
    char *found = strcasestr(c->bytes, "\r\ncontent-length:");
    if (found) body = strtoul(found + 17, NULL, 10);
    *end = '\r';
    return c->length >= head + body ? head + body : 0;
}

static void receive(Connection *c) {
    ssize_t n = read(c->fd, c->bytes + c->length, BUFFER - c->length);
    if (n <= 0) {
        close(c->fd);
        reopened++;
        open_connection(c);
        send_request(c);
        return;
    }
    c->length += n;
    if (!whole(c)) return;
    if (answered < SAMPLES) samples[answered] = (now_ns() - c->began) / 1000;
    answered++;
    if (strncmp(c->bytes + 9, "200", 3)) refused++;
    send_request(c);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static unsigned percentile(size_t count, double share) {
    return count ? samples[(size_t)((count - 1) * share)] : 0;
}

int main(int argc, char **argv) {
    struct epoll_event events[256];
    if (argc != 5) { fprintf(stderr, "usage: load PORT CONNECTIONS SECONDS REQUEST_FILE\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    port = atoi(argv[1]);
    int count = atoi(argv[2]);
    FILE *file = fopen(argv[4], "rb");
    if (!file) fail(argv[4]);
    request_length = fread(request, 1, sizeof request, file);
    epoll = epoll_create1(0);
    int64_t began = now_ns(), end = began + (int64_t)(atof(argv[3]) * 1e9);
    for (int i = 0; i < count && i < CONNECTIONS; i++) {
        connections[i] = calloc(1, sizeof *connections[i]);
        open_connection(connections[i]);
        send_request(connections[i]);
    }
    while (now_ns() < end) {
        int n = epoll_wait(epoll, events, 256, 100);
        for (int i = 0; i < n; i++) receive(events[i].data.ptr);
    }
    double seconds = (now_ns() - began) / 1e9;
    size_t kept = answered < SAMPLES ? answered : SAMPLES;
    qsort(samples, kept, sizeof *samples, ascending);
    printf("{\"rate\":%.1f,\"answered\":%zu,\"refused\":%zu,\"reopened\":%zu,"
           "\"p50_us\":%u,\"p99_us\":%u,\"max_us\":%u}\n",
           answered / seconds, answered, refused, reopened, percentile(kept, 0.5),
           percentile(kept, 0.99), percentile(kept, 1));
    return 0;
}
