package peer;

import io.quarkus.runtime.Quarkus;
import io.quarkus.runtime.annotations.QuarkusMain;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;

/**
 * A test agent built with io.github.a2asdk 0.3.3: JSON-RPC of A2A 0.3. It is
 * started with --listen ADDR --log FILE [--public URL]; the first line on
 * standard output says where it is, as JSON. It ends when standard input does.
 */
@QuarkusMain
public class Main {
    public static void main(String... args) throws IOException {
        Map<String, String> flags = new HashMap<>();
        for (int i = 0; i + 1 < args.length; i += 2) {
            flags.put(args[i], args[i + 1]);
        }
        String port = flags.getOrDefault("--listen", "127.0.0.1:0").split(":")[1];
        if (port.equals("0")) {
            // The card has to say where we are before the server is up.
            try (ServerSocket s = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
                port = Integer.toString(s.getLocalPort());
            }
        }
        String own = "http://127.0.0.1:" + port;
        System.setProperty("quarkus.http.port", port);
        Files.write(Path.of(flags.get("--log")), new byte[0], StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        System.setProperty("peer.log", flags.get("--log"));
        System.setProperty("peer.base", flags.getOrDefault("--public", own));
        Thread end = new Thread(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (IOException e) {
                // The pipe is broken, which is an end too.
            }
            Runtime.getRuntime().halt(0);
        });
        end.setDaemon(true);
        end.start();
        System.out.println("{\"url\":\"" + own + "\",\"jsonrpc03\":\"" + own + "/\"}");
        Quarkus.run();
    }
}
