/* The receiver of every contestant: an HTTP/1.1 sink that is never the limit.
 *
 *   sink DELAY_US [BODY_FILE]
 *
 * Listens on a free loopback port and prints it. Answers every request with 200 after
 * DELAY_US microseconds (0: at once), with the file's bytes as JSON if one is given.
 * Keeps a ledger by the header X-Telegrammer-Delivery-Id, BOT-SUBSCRIPTION-UPDATE: within a
 * subscription the updates must come in ascending order and one at a time.
 *
 * Control, as requests on the same port:
 *   /control/close     hold every answer until opened
 *   /control/open      let them go; the clock of the ledger starts
 *   /control/forget    count and time only what comes from now on
 *   /control/stats     the ledger, JSON
 *   /control/arrivals  when each request's first byte was read, CLOCK_MONOTONIC ns
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (256 * 1024)
#define SUBSCRIPTIONS 1000000
#define ARRIVALS 1000000
#define CONNECTIONS 65536

typedef struct { int64_t last; int running; } Lane;
typedef struct { int fd; int64_t lane; } Answer; /* lane -1: no delivery id */
typedef struct {
    char *bytes;
    size_t length, start;
    int64_t began;
    int busy; /* a request is being answered: the next one waits in the buffer */
} Connection;
typedef struct { int fd; int64_t lane, due; } Waiting;

static Lane lanes[SUBSCRIPTIONS];
static Connection connections[CONNECTIONS];
static Waiting waiting[CONNECTIONS]; /* a ring: every delay is the same */
static size_t waiting_first, waiting_count;
static Answer held[CONNECTIONS];
static size_t held_count;
static int64_t arrivals[ARRIVALS];
static size_t arrived;
static int64_t received, answered, repeats, misplaced, overlaps, accepted, running, most_running;
static int64_t opened_at, last_answer_at;
static int is_closed, epoll, timer;
static int64_t delay_ns;
static char *reply;
static size_t reply_length;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char *what) { perror(what); exit(1); }

static void drop(int fd) {
    /* Answers still owed to it must not go to a later connection of the same number. */
    for (size_t i = 0; i < held_count; i++)
        if (held[i].fd == fd) held[i].fd = -1;
    for (size_t i = 0; i < waiting_count; i++) {
        Waiting *w = &waiting[(waiting_first + i) % CONNECTIONS];
        if (w->fd == fd) w->fd = -1;
    }
    free(connections[fd].bytes);
    memset(&connections[fd], 0, sizeof connections[fd]);
    close(fd);
}

/* A client that does not read its answer is not served: answers are tiny. */
static void put(int fd, const char *bytes, size_t length) {
    if (fd >= 0 && write(fd, bytes, length) != (ssize_t)length) shutdown(fd, SHUT_RDWR);
}

static void serve(int fd);

static void finish(int fd, int64_t lane) {
    last_answer_at = now_ns();
    answered++;
    running--;
    if (lane >= 0) lanes[lane].running--;
    put(fd, reply, reply_length);
    if (fd >= 0) connections[fd].busy = 0;
}

static void arm(int64_t at) {
    struct itimerspec t = {{0, 0}, {at / 1000000000LL, at % 1000000000LL}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static void answer(int fd, int64_t lane) {
    if (is_closed) {
        held[held_count++] = (Answer){fd, lane};
    } else if (delay_ns == 0) {
        finish(fd, lane);
    } else {
        int64_t due = now_ns() + delay_ns;
        waiting[(waiting_first + waiting_count++) % CONNECTIONS] = (Waiting){fd, lane, due};
        if (waiting_count == 1) arm(due);
    }
}

static void answer_due(void) {
    uint64_t ignored;
    if (read(timer, &ignored, sizeof ignored) < 0 && errno != EAGAIN) fail("timer");
    int64_t now = now_ns();
    while (waiting_count && waiting[waiting_first].due <= now) {
        Waiting w = waiting[waiting_first];
        waiting_first = (waiting_first + 1) % CONNECTIONS;
        waiting_count--;
        finish(w.fd, w.lane);
        if (w.fd >= 0) serve(w.fd);
    }
    if (waiting_count) arm(waiting[waiting_first].due);
}

static void open_gate(void) {
    size_t count = held_count;
    is_closed = 0;
    held_count = 0;
    opened_at = now_ns();
    for (size_t i = 0; i < count; i++) {
        Answer a = held[i];
        answer(a.fd, a.lane);
        if (a.fd >= 0) serve(a.fd);
    }
}

static void put_json(int fd, const char *json, size_t length) {
    char head[128];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n", length);
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    put(fd, head, n);
    put(fd, json, length);
    fcntl(fd, F_SETFL, flags);
}

static void put_arrivals(int fd) {
    char *json = malloc(arrived * 24 + 16), *at = json;
    *at++ = '[';
    for (size_t i = 0; i < arrived; i++)
        at += sprintf(at, i ? ",%ld" : "%ld", (long)arrivals[i]);
    *at++ = ']';
    put_json(fd, json, at - json);
    free(json);
}

static void control(int fd, const char *name) {
    char json[512];
    int n = snprintf(json, sizeof json, "{}");
    if (!strncmp(name, "close ", 6)) is_closed = 1;
    else if (!strncmp(name, "open ", 5)) open_gate();
    else if (!strncmp(name, "forget ", 7)) received = answered = arrived = 0;
    else if (!strncmp(name, "arrivals ", 9)) { put_arrivals(fd); return; }
    else n = snprintf(json, sizeof json,
        "{\"received\":%ld,\"answered\":%ld,\"held\":%zu,\"repeats\":%ld,\"misplaced\":%ld,"
        "\"overlaps\":%ld,\"connections\":%ld,\"most_running\":%ld,\"opened_at\":%ld,"
        "\"last_answer_at\":%ld}",
        (long)received, (long)answered, held_count, (long)repeats, (long)misplaced,
        (long)overlaps, (long)accepted, (long)most_running, (long)opened_at,
        (long)last_answer_at);
    put_json(fd, json, n);
}

/* Return the number of the lane, or -1; enter the request into the ledger. */
static int64_t enter(const char *id) {
    long bot, lane, update;
    if (!id || sscanf(id, " %ld-%ld-%ld", &bot, &lane, &update) != 3) return -1;
    if (lane < 0 || lane >= SUBSCRIPTIONS) return -1;
    Lane *l = &lanes[lane];
    if (update == l->last) repeats++;
    else if (update < l->last) misplaced++;
    else l->last = update;
    if (l->running++) overlaps++;
    return lane;
}

static const char *header(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (!strncasecmp(line, name, length)) return line + length;
    }
    return NULL;
}

/* Take the complete requests out of the connection's buffer. */
static void serve(int fd) {
    Connection *c = &connections[fd];
    while (c->bytes && !c->busy && c->start < c->length) {
        char *head = c->bytes + c->start;
        char *end = memmem(head, c->length - c->start, "\r\n\r\n", 4);
        if (!end) break;
        *end = 0; /* the head is a string now; put back if the body is not there yet */
        const char *length = header(head, "content-length:");
        size_t whole = (end + 4 - head) + (length ? strtoul(length, NULL, 10) : 0);
        if (whole > c->length - c->start) { *end = '\r'; break; }
        c->start += whole;
        char *path = strchr(head, ' ');
        if (path && !strncmp(path, " /control/", 10)) {
            control(fd, path + 10);
        } else {
            if (arrived < ARRIVALS) arrivals[arrived++] = c->began;
            received++;
            if (++running > most_running) most_running = running;
            c->busy = 1;
            answer(fd, enter(header(head, "x-telegrammer-delivery-id:")));
        }
    }
    if (c->start == c->length) c->start = c->length = 0;
}

static void receive(int fd) {
    Connection *c = &connections[fd];
    if (!c->bytes) c->bytes = malloc(BUFFER);
    if (c->start) {
        memmove(c->bytes, c->bytes + c->start, c->length - c->start);
        c->length -= c->start;
        c->start = 0;
    }
    if (c->length == 0) c->began = now_ns();
    ssize_t n = read(fd, c->bytes + c->length, BUFFER - c->length);
    if (n > 0) {
        c->length += n;
        serve(fd);
    } else if (n == 0 || errno != EAGAIN) {
        drop(fd);
    }
}

static void add(int fd) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e)) fail("epoll_ctl");
}

static int listen_anywhere(void) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (void *)&a, size) || listen(fd, 1024)) fail("listen");
    getsockname(fd, (void *)&a, &size);
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static void load_reply(const char *path) {
    static char body[BUFFER], whole[BUFFER + 128];
    size_t n = 2;
    memcpy(body, "{}", 2);
    if (path) {
        FILE *file = fopen(path, "rb");
        if (!file) fail(path);
        n = fread(body, 1, sizeof body, file);
        fclose(file);
    }
    reply = whole;
    reply_length = sprintf(whole, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                  "Content-Length: %zu\r\n\r\n", n);
    memcpy(whole + reply_length, body, n);
    reply_length += n;
}

int main(int argc, char **argv) {
    struct epoll_event events[256];
    int one = 1;
    if (argc < 2) { fprintf(stderr, "usage: sink DELAY_US [BODY_FILE]\n"); return 2; }
    signal(SIGPIPE, SIG_IGN);
    delay_ns = atoll(argv[1]) * 1000;
    load_reply(argc > 2 ? argv[2] : NULL);
    for (size_t i = 0; i < SUBSCRIPTIONS; i++) lanes[i].last = INT64_MIN;
    epoll = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    add(timer);
    int listener = listen_anywhere();
    add(listener);
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == timer) {
                answer_due();
            } else if (fd == listener) {
                int client = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
                if (client < 0) continue;
                if (client >= CONNECTIONS) { close(client); continue; }
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                accepted++;
                add(client);
            } else {
                receive(fd);
            }
        }
    }
}
