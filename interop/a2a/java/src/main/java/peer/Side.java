package peer;

import io.quarkus.vertx.web.Route;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.web.RoutingContext;
import jakarta.enterprise.context.ApplicationScoped;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/** What belongs to the tests and to no protocol. */
@ApplicationScoped
public class Side {
    private final Set<String> open = new HashSet<>();
    private final Set<String> cancelled = new HashSet<>();

    @Route(path = "/log", methods = Route.HttpMethod.GET, type = Route.HandlerType.BLOCKING)
    void log(RoutingContext rc) throws IOException {
        Path file = Path.of(System.getProperty("peer.log"));
        rc.response().putHeader("content-type", "application/x-ndjson").end(Files.readString(file));
    }

    @Route(path = "/release", methods = Route.HttpMethod.POST, type = Route.HandlerType.BLOCKING)
    void release(RoutingContext rc) {
        synchronized (this) {
            open.add(rc.request().getParam("key"));
            notifyAll();
        }
        rc.response().end("ok");
    }

    /** Waits until the gate is open; false is that the task was cancelled. */
    synchronized boolean await(String key, String task) throws InterruptedException {
        while (!open.contains(key) && !cancelled.contains(task)) {
            wait();
        }
        return !cancelled.contains(task);
    }

    synchronized void cancel(String task) {
        cancelled.add(task);
        notifyAll();
    }

    synchronized void write(String what, String message, String task, String context, String text) {
        String line = new JsonObject().put("at", System.currentTimeMillis()).put("pid", ProcessHandle.current().pid())
                .put("what", what).put("message", message).put("task", task).put("context", context)
                .put("text", text.length() > 200 ? text.substring(0, 200) : text).encode();
        try {
            Files.writeString(Path.of(System.getProperty("peer.log")), line + "\n",
                    StandardOpenOption.APPEND);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
