/* A server whose every token is known: it writes its own clock into each event.
 *
 * One thread, epoll, no allocation per event: what a client measures against it is the client's own
 * doing. The first segment of a request's path says how to behave, as name=value pairs:
 *
 *     POST /ttft_us=500000,interval_us=20000,tokens=1/v1/completions
 *
 *   ttft_us      from the request's last byte to the first event
 *   interval_us  from event to event; 0 sends as fast as the socket takes
 *   tokens       tokens an event
 *   sync         1: events of all streams fall on one grid of interval_us, as decode steps do
 *
 * Paths end in /v1/completions, /v1/chat/completions or /generate. The text of an event is two times
 * of 20 digits each, CLOCK_MONOTONIC in ns: when it was written, and when the kernel had the request;
 * how many tokens are wanted is read from max_tokens or max_new_tokens. GET /log answers one line a request that ended or was cut:
 * received, first and last write (ns), tokens, tokens that were wanted. GET /health and /v1/models
 * answer as an engine does.
 *
 * Build: cc -O2 -o truth truth.c      Run: truth PORT   (0: any; the port is printed)
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
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FD = 16384, REQUEST = 1 << 16, EVENT = 1024, LOG_LINES = 1 << 20, RETRY_NS = 50000 };
enum kind { COMPLETIONS, CHAT, GENERATE };

struct stream {
    char *request; /* what has come of the request under way */
    size_t have;
    int open, busy, streaming, usage, heap_at;
    enum kind kind;
    long wanted, sent, tokens, prompt;
    uint64_t due, interval, arrived, received, first, last;
};

struct line { uint64_t received, first, last; long tokens, wanted; };

static struct stream streams[MAX_FD];
static struct line *lines;
static size_t logged;
static int heap[MAX_FD], heap_size, timer;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }

/* --- a heap of streams by the time of their next event */

static int before(int a, int b) { return streams[heap[a]].due < streams[heap[b]].due; }

static void swap(int a, int b) {
    int fd = heap[a];
    heap[a] = heap[b], heap[b] = fd;
    streams[heap[a]].heap_at = a, streams[heap[b]].heap_at = b;
}

static void rise(int at) {
    for (; at > 0 && before(at, (at - 1) / 2); at = (at - 1) / 2) swap(at, (at - 1) / 2);
}

static void sink(int at) {
    for (;;) {
        int least = at, left = 2 * at + 1;
        if (left < heap_size && before(left, least)) least = left;
        if (left + 1 < heap_size && before(left + 1, least)) least = left + 1;
        if (least == at) return;
        swap(at, least), at = least;
    }
}

static void schedule(int fd) {
    heap[heap_size] = fd, streams[fd].heap_at = heap_size, heap_size++;
    rise(heap_size - 1);
}

static void unschedule(int fd) {
    int at = streams[fd].heap_at;
    if (at < 0) return;
    streams[fd].heap_at = -1;
    heap_size--;
    if (at == heap_size) return;
    heap[at] = heap[heap_size], streams[heap[at]].heap_at = at;
    rise(at), sink(at);
}

static void arm(void) {
    struct itimerspec when = {0};
    if (heap_size) {
        uint64_t due = streams[heap[0]].due;
        when.it_value.tv_sec = (time_t)(due / 1000000000u);
        when.it_value.tv_nsec = (long)(due % 1000000000u);
    }
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* --- answers */

static void log_line(const struct stream *s) {
    if (logged < LOG_LINES)
        lines[logged++] = (struct line){s->received, s->first, s->last, s->sent, s->wanted};
}

static void hang_up(int fd) {
    if (streams[fd].busy && streams[fd].sent) log_line(&streams[fd]);
    unschedule(fd);
    free(streams[fd].request);
    memset(&streams[fd], 0, sizeof streams[fd]);
    streams[fd].heap_at = -1;
    close(fd);
}

static void say(int fd, const char *text, size_t size) {
    while (size) {
        ssize_t sent = send(fd, text, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) continue; /* small answers outside of any measurement */
        if (sent <= 0) return;
        text += sent, size -= (size_t)sent;
    }
}

static void answer(int fd, const char *type, const char *body, size_t size) {
    char head[256];
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", type, size);
    say(fd, head, (size_t)n), say(fd, body, size);
}

static void answer_log(int fd) {
    char *text = malloc(logged * 112 + 1);
    size_t size = 0;
    for (size_t i = 0; i < logged; i++)
        size += (size_t)sprintf(text + size, "%llu %llu %llu %ld %ld\n",
                                (unsigned long long)lines[i].received,
                                (unsigned long long)lines[i].first,
                                (unsigned long long)lines[i].last, lines[i].tokens,
                                lines[i].wanted);
    answer(fd, "text/plain", text, size);
    free(text);
    logged = 0;
}

/* One event as one HTTP chunk; `stamp` stands where a model's text would. */
static size_t event(char *out, const struct stream *s, uint64_t stamp, int last) {
    char body[EVENT], usage[160] = "null";
    const char *finish = last ? "\"length\"" : "null";
    unsigned long long at = stamp, asked = s->arrived;
    if (s->usage)
        snprintf(usage, sizeof usage,
                 "{\"prompt_tokens\":%ld,\"total_tokens\":%ld,\"completion_tokens\":%ld}", s->prompt,
                 s->prompt + s->sent, s->sent);
    int n;
    if (s->kind == GENERATE)
        n = snprintf(body, sizeof body,
                     "data: {\"text\":\"%020llu%020llu\",\"output_ids\":[%ld],\"meta_info\":{\"id\":"
                     "\"0123456789abcdef0123456789abcdef\",\"finish_reason\":%s,\"prompt_tokens\":%ld,"
                     "\"weight_version\":\"default\",\"completion_tokens\":%ld,\"cached_tokens\":0,"
                     "\"e2e_latency\":null}}\n\n",
                     at, asked, s->sent, last ? "{\"type\":\"length\"}" : "null", s->prompt, s->sent);
    else if (s->kind == CHAT)
        n = snprintf(body, sizeof body,
                     "data: {\"id\":\"chatcmpl-0123456789abcdef0123456789abcdef\",\"object\":"
                     "\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"truth\",\"choices\":"
                     "[{\"index\":0,\"delta\":{\"role\":null,\"content\":\"%020llu%020llu\"},\"logprobs\":null,"
                     "\"finish_reason\":%s}],\"usage\":%s}\n\n",
                     at, asked, finish, usage);
    else
        n = snprintf(body, sizeof body,
                     "data: {\"id\":\"cmpl-0123456789abcdef0123456789abcdef\",\"object\":"
                     "\"text_completion\",\"created\":1700000000,\"model\":\"truth\",\"choices\":"
                     "[{\"index\":0,\"text\":\"%020llu%020llu\",\"logprobs\":null,\"finish_reason\":%s,"
                     "\"matched_stop\":null}],\"usage\":%s}\n\n",
                     at, asked, finish, usage);
    return (size_t)sprintf(out, "%x\r\n%.*s\r\n", n, n, body);
}

static void finish(int fd) {
    struct stream *s = &streams[fd];
    static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    say(fd, end, sizeof end - 1);
    log_line(s);
    s->busy = 0;
}

/* The whole answer at once, for a request that does not want a stream. */
static void answer_whole(int fd) {
    struct stream *s = &streams[fd];
    char body[EVENT];
    const char *form = s->kind == GENERATE
                           ? "{\"text\":\"%020llu\",\"meta_info\":{\"prompt_tokens\":%ld,"
                             "\"completion_tokens\":%ld}}"
                           : "{\"object\":\"text_completion\",\"model\":\"truth\",\"choices\":[{"
                             "\"index\":0,\"text\":\"%020llu\",\"finish_reason\":\"length\"}],"
                             "\"usage\":{\"prompt_tokens\":%ld,\"completion_tokens\":%ld}}";
    int n = snprintf(body, sizeof body, form, (unsigned long long)now_ns(), s->prompt, s->wanted);
    answer(fd, "application/json", body, (size_t)n);
    s->busy = 0;
}

/* The next event of a stream; a full socket is tried again a little later. */
static void emit(int fd) {
    struct stream *s = &streams[fd];
    char out[EVENT + 64];
    if (!s->streaming) {
        answer_whole(fd);
        return;
    }
    long step = s->tokens < s->wanted - s->sent ? s->tokens : s->wanted - s->sent;
    s->sent += step;
    uint64_t stamp = now_ns();
    size_t size = event(out, s, stamp, s->sent == s->wanted);
    ssize_t sent = send(fd, out, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
        s->sent -= step, s->due = stamp + RETRY_NS;
        schedule(fd);
        return;
    }
    if (sent < 0) {
        hang_up(fd);
        return;
    }
    if ((size_t)sent < size) say(fd, out + sent, size - (size_t)sent);
    if (!s->first) s->first = stamp;
    s->last = stamp;
    if (s->sent >= s->wanted) {
        finish(fd);
        return;
    }
    s->due += s->interval;
    schedule(fd);
}

static void emit_due(void) {
    uint64_t until = now_ns();
    while (heap_size && streams[heap[0]].due <= until) {
        int fd = heap[0];
        unschedule(fd);
        emit(fd);
    }
}

/* --- questions */

static long number_after(const char *text, const char *name, long otherwise) {
    const char *at = strstr(text, name);
    if (!at) return otherwise;
    at += strlen(name);
    while (*at == ' ' || *at == ':' || *at == '=' || *at == '"') at++;
    return strtol(at, NULL, 10);
}

static long count_prompt(const char *body) {
    const char *at = strstr(body, "\"prompt\"");
    if (!at) at = strstr(body, "\"input_ids\"");
    if (!at || !(at = strchr(at, ':'))) return 1;
    while (*++at == ' ') {}
    if (*at != '[') return 1;
    long commas = 0;
    for (; *at && *at != ']'; at++) commas += *at == ',';
    return commas + 1;
}

static void start(int fd, const char *path, const char *body) {
    struct stream *s = &streams[fd];
    s->kind = strstr(path, "/generate") ? GENERATE : strstr(path, "/chat/") ? CHAT : COMPLETIONS;
    s->received = now_ns();
    s->wanted = number_after(body, s->kind == GENERATE ? "\"max_new_tokens\"" : "\"max_tokens\"", -1);
    if (s->wanted < 0) s->wanted = number_after(body, "\"max_completion_tokens\"", 16);
    s->prompt = count_prompt(body);
    s->usage = strstr(body, "include_usage") != NULL;
    s->streaming = strstr(body, "\"stream\": true") || strstr(body, "\"stream\":true");
    s->tokens = number_after(path, "tokens=", 1);
    s->interval = (uint64_t)number_after(path, "interval_us=", 20000) * 1000;
    s->sent = 0, s->first = s->last = 0, s->busy = 1;
    s->due = s->received + (uint64_t)number_after(path, "ttft_us=", 20000) * 1000;
    if (number_after(path, "sync=", 0) && s->interval) s->due += s->interval - s->due % s->interval;
    if (s->streaming) {
        static const char head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
                                   "transfer-encoding: chunked\r\n\r\n";
        say(fd, head, sizeof head - 1);
    }
    schedule(fd);
}

static void ask(int fd, char *request, const char *body) {
    static const char models[] = "{\"object\":\"list\",\"data\":[{\"id\":\"truth\"}]}";
    char *path = strchr(request, ' ');
    char *end = path ? strchr(++path, ' ') : NULL;
    if (!end) {
        hang_up(fd);
        return;
    }
    *end = 0;
    if (!strncmp(request, "POST", 4)) start(fd, path, body);
    else if (strstr(path, "/log")) answer_log(fd);
    else if (strstr(path, "/models")) answer(fd, "application/json", models, sizeof models - 1);
    else answer(fd, "application/json", "{}", 2);
}

/* Reads what is there, and when the kernel had it: this thread may have been busy meanwhile. */
static ssize_t receive(int fd, struct stream *s) {
    char control[CMSG_SPACE(sizeof(struct timespec))];
    struct iovec into = {s->request + s->have, (size_t)REQUEST - 1 - s->have};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, 0);
    if (n <= 0) return n;
    s->arrived = now_ns();
    struct cmsghdr *told = CMSG_FIRSTHDR(&message);
    if (told && told->cmsg_level == SOL_SOCKET && told->cmsg_type == SO_TIMESTAMPNS) {
        struct timespec t;
        memcpy(&t, CMSG_DATA(told), sizeof t);
        s->arrived -= clock_ns(CLOCK_REALTIME) -
                      ((uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec);
    }
    return n;
}

static void hear(int fd) {
    struct stream *s = &streams[fd];
    for (;;) {
        ssize_t n = receive(fd, s);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0 || s->have + (size_t)n >= REQUEST - 1) {
            hang_up(fd);
            return;
        }
        s->have += (size_t)n;
    }
    s->request[s->have] = 0;
    char *body = strstr(s->request, "\r\n\r\n");
    if (!body || s->busy) return;
    body += 4;
    char *length = strcasestr(s->request, "\r\ncontent-length:");
    size_t size = length && length < body ? (size_t)strtol(length + 17, NULL, 10) : 0;
    if ((size_t)(s->request + s->have - body) < size) return;
    s->have = 0;
    ask(fd, s->request, body);
}

static void accept_all(int listener, int poll) {
    int one = 1, fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        if (fd >= MAX_FD) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
        memset(&streams[fd], 0, sizeof streams[fd]);
        streams[fd].request = malloc(REQUEST), streams[fd].heap_at = -1, streams[fd].open = 1;
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poll, EPOLL_CTL_ADD, fd, &want);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, 4096)) {
        perror("truth: cannot listen");
        exit(1);
    }
    getsockname(fd, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    lines = malloc(sizeof *lines * LOG_LINES);
    int listener = listen_on(argc > 1 ? atoi(argv[1]) : 0), poll = epoll_create1(EPOLL_CLOEXEC);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct epoll_event want = {.events = EPOLLIN, .data.fd = listener}, found[512];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &want);
    want.data.fd = timer;
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &want);
    for (;;) {
        int n = epoll_wait(poll, found, 512, -1);
        for (int i = 0; i < n; i++) {
            int fd = found[i].data.fd;
            uint64_t expirations;
            if (fd == listener) accept_all(listener, poll);
            else if (fd == timer) (void)!read(timer, &expirations, sizeof expirations);
            else if (streams[fd].open) hear(fd);
        }
        emit_due();
        arm();
    }
}
