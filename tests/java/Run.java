import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Runs the checks of one area against a broker: Run AREA URI [CHECK...].
 *
 * A check is a public method without parameters of the area's class. Each gets an object of its own, and prints one
 * line: {"check": name, "outcome": what it returned}. An outcome is data: what came, in which order, with which
 * headers. A check that throws has the outcome {"failed": class, "message": text}, and one that hangs {"hangs": where}.
 */
public final class Run {

    private static final long PATIENCE_MILLIS = 30_000;

    public static void main(String[] arguments) throws Exception {
        Class<?> area = Class.forName(arguments[0]);
        List<String> only = Arrays.asList(arguments).subList(2, arguments.length);
        for (Method check : checks(area)) {
            if (only.isEmpty() || only.contains(check.getName())) {
                long began = System.nanoTime();
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("check", check.getName());
                line.put("outcome", perform((Area) area.getDeclaredConstructor().newInstance(), arguments[1], check));
                line.put("millis", (System.nanoTime() - began) / 1_000_000);
                System.out.println(Json.write(line));
            }
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static List<Method> checks(Class<?> area) {
        return Arrays.stream(area.getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()) && method.getParameterCount() == 0)
                .sorted(Comparator.comparing(Method::getName))
                .toList();
    }

    private static Object perform(Area area, String uri, Method check) throws InterruptedException {
        Object[] outcome = new Object[1];
        Thread worker = new Thread(() -> outcome[0] = call(area, uri, check), check.getName());
        worker.setDaemon(true);
        worker.start();
        worker.join(PATIENCE_MILLIS);
        if (worker.isAlive()) {
            return Map.of("hangs", Arrays.stream(worker.getStackTrace()).map(Object::toString).toList());
        }
        return outcome[0];
    }

    private static Object call(Area area, String uri, Method check) {
        try {
            area.begin(uri, check.getName());
            try {
                return check.invoke(area);
            } finally {
                area.end();
            }
        } catch (InvocationTargetException wrapped) {
            return failed(wrapped.getCause());
        } catch (Exception broken) {
            return failed(broken);
        }
    }

    private static Object failed(Throwable reason) {
        reason.printStackTrace();
        Map<String, Object> outcome = new LinkedHashMap<>();
        outcome.put("failed", reason.getClass().getName());
        outcome.put("message", String.valueOf(reason.getMessage()));
        return outcome;
    }
}
