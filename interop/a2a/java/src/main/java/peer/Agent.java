package peer;

import io.a2a.server.PublicAgentCard;
import io.a2a.server.agentexecution.AgentExecutor;
import io.a2a.server.agentexecution.RequestContext;
import io.a2a.server.events.EventQueue;
import io.a2a.server.tasks.TaskUpdater;
import io.a2a.spec.AgentCapabilities;
import io.a2a.spec.AgentCard;
import io.a2a.spec.AgentSkill;
import io.a2a.spec.DataPart;
import io.a2a.spec.FileContent;
import io.a2a.spec.FilePart;
import io.a2a.spec.FileWithBytes;
import io.a2a.spec.FileWithUri;
import io.a2a.spec.JSONRPCError;
import io.a2a.spec.Message;
import io.a2a.spec.Part;
import io.a2a.spec.TaskNotCancelableError;
import io.a2a.spec.TextPart;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.inject.Produces;
import jakarta.inject.Inject;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What the test agent does: the text of the message says it. The same script is
 * in ../python/script.py.
 */
@ApplicationScoped
public class Agent {
    private static final String HELLO = "aGVsbG8sIGZpbGUK";
    private final Set<String> refuses = ConcurrentHashMap.newKeySet();

    @Inject
    Side side;

    @Produces
    @PublicAgentCard
    public AgentCard card() {
        List<String> modes = List.of("text/plain", "application/json");
        return new AgentCard.Builder()
                .name("java 0.3").description("a scripted agent").version("1").protocolVersion("0.3.0")
                .url(System.getProperty("peer.base") + "/").preferredTransport("JSONRPC")
                .capabilities(new AgentCapabilities.Builder().streaming(true).pushNotifications(true).build())
                .defaultInputModes(modes).defaultOutputModes(modes)
                .skills(List.of(new AgentSkill.Builder().id("script").name("script")
                        .description("obeys the text").tags(List.of("test")).build()))
                .build();
    }

    @Produces
    public AgentExecutor executor() {
        return new AgentExecutor() {
            @Override
            public void execute(RequestContext x, EventQueue queue) throws JSONRPCError {
                run(x, queue);
            }

            @Override
            public void cancel(RequestContext x, EventQueue queue) throws JSONRPCError {
                side.write("cancel", "", x.getTaskId(), x.getContextId(), "");
                if (refuses.contains(x.getTaskId())) {
                    throw new TaskNotCancelableError("asked to refuse");
                }
                side.cancel(x.getTaskId());
                new TaskUpdater(x, queue).cancel();
            }
        };
    }

    private void run(RequestContext x, EventQueue queue) {
        StringBuilder texts = new StringBuilder();
        Map<String, Object> data = null;
        List<String> got = new ArrayList<>();
        for (Part<?> p : x.getMessage().getParts()) {
            if (p instanceof TextPart t) {
                texts.append(texts.isEmpty() ? "" : "\n").append(t.getText());
                got.add("text");
            } else if (p instanceof DataPart d) {
                data = d.getData();
                got.add("data");
            } else if (p instanceof FilePart f) {
                got.add(describe(f.getFile()));
            }
        }
        String text = texts.toString();
        side.write("execute", x.getMessage().getMessageId(), x.getTaskId(), x.getContextId(), text);
        TaskUpdater out = new TaskUpdater(x, queue);
        if (x.getTask() != null) {
            out.startWork(say(out, "got it"));
            List<Part<?>> parts = new ArrayList<>(List.of(new TextPart("answer: " + text)));
            if (data != null) {
                parts.add(new DataPart(data));
            }
            done(out, parts);
            return;
        }
        if (text.isEmpty() && data != null) {
            text = String.valueOf(data.get("do"));
        }
        String[] words = text.split(" ", 2);
        try {
            obey(words[0], words.length > 1 ? words[1] : "", data, new Execution(x, queue, out, String.join(", ", got)));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static String describe(FileContent file) {
        if (file instanceof FileWithBytes f) {
            return "raw " + Base64.getDecoder().decode(f.bytes()).length + " " + f.name() + " " + f.mimeType();
        }
        FileWithUri f = (FileWithUri) file;
        return "url " + f.uri() + " " + f.name() + " " + f.mimeType();
    }

    private record Execution(RequestContext x, EventQueue queue, TaskUpdater out, String got) {}

    private void obey(String verb, String rest, Map<String, Object> data, Execution e) throws InterruptedException {
        TaskUpdater out = e.out();
        switch (verb) {
            case "message" -> {
                e.queue().enqueueEvent(out.newAgentMessage(List.of(new TextPart(rest)), null));
                return;
            }
            case "crash" -> throw new IllegalStateException("asked to crash");
            case "ask" -> {
                out.submit();
                out.requiresInput(say(out, rest.isEmpty() ? "how many?" : rest), true);
                return;
            }
            case "reject" -> {
                out.submit();
                out.reject(say(out, rest.isEmpty() ? "asked to reject" : rest));
                return;
            }
            case "auth" -> {
                out.submit();
                out.requiresAuth(say(out, "sign in elsewhere"));
                if (side.await(rest, e.x().getTaskId())) {
                    out.startWork();
                    done(out, List.of(new TextPart("signed in")));
                }
                return;
            }
            default -> out.submit();
        }
        out.startWork(verb.equals("stuck") ? say(out, "for ever") : null);
        work(verb, rest, data, e);
    }

    private void work(String verb, String rest, Map<String, Object> data, Execution e) throws InterruptedException {
        TaskUpdater out = e.out();
        switch (verb) {
            case "late-crash" -> throw new IllegalStateException("asked to crash");
            case "echo" -> done(out, List.of(new TextPart(rest)));
            case "got" -> done(out, List.of(new TextPart(e.got())));
            case "fail" -> out.fail(say(out, rest.isEmpty() ? "asked to fail" : rest));
            case "data" -> done(out, List.of(new DataPart(data)));
            case "file" -> done(out, List.of(new TextPart("one file"), rest.equals("url")
                    ? new FilePart(new FileWithUri("text/plain", "a.txt", "https://files.example/a.txt"))
                    : new FilePart(new FileWithBytes("text/plain", "hello.txt", HELLO))));
            case "slow" -> slow(out, rest);
            case "chunks" -> chunks(out, Integer.parseInt(rest));
            case "drip" -> drip(e, rest.split(" ", 2));
            case "big" -> done(out, List.of(new TextPart("x".repeat(Integer.parseInt(rest)))));
            case "hold", "refuse-cancel" -> {
                if (verb.equals("refuse-cancel")) {
                    refuses.add(e.x().getTaskId());
                }
                if (side.await(rest, e.x().getTaskId())) {
                    done(out, List.of(new TextPart("held " + rest)));
                }
            }
            case "stuck" -> side.await("\0never", e.x().getTaskId());
            default -> out.fail(say(out, "no such command: " + verb));
        }
    }

    private static void slow(TaskUpdater out, String rest) throws InterruptedException {
        for (int quarter = 1; quarter <= 4; quarter++) {
            Thread.sleep(Long.parseLong(rest) / 4);
            if (quarter < 4) {
                out.startWork(say(out, quarter + "/4"));
            }
        }
        done(out, List.of(new TextPart("slow " + rest)));
    }

    private static void chunks(TaskUpdater out, int count) throws InterruptedException {
        for (int i = 0; i < count; i++) {
            out.addArtifact(List.of(new TextPart(i + " ")), "out", "out", null, i > 0, i == count - 1);
            Thread.sleep(20);
        }
        out.complete();
    }

    private void drip(Execution e, String[] words) throws InterruptedException {
        TaskUpdater out = e.out();
        for (int i = 0; i < Integer.parseInt(words[0]); i++) {
            out.addArtifact(List.of(new TextPart(i + " ")), "out", "out", null, i > 0, false);
        }
        if (side.await(words[1], e.x().getTaskId())) {
            out.addArtifact(List.of(new TextPart("end")), "out", "out", null, true, true);
            out.complete();
        }
    }

    private static void done(TaskUpdater out, List<Part<?>> parts) {
        out.addArtifact(parts, "out", "out", null, false, true);
        out.complete();
    }

    private static Message say(TaskUpdater out, String text) {
        return out.newAgentMessage(List.of(new TextPart(text)), null);
    }
}
